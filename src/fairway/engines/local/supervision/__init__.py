"""The process beside each task: starts its processes, waits, ends them, and records the truth.

Standard library only, but for the records that the daemon reads too: it runs apart from the daemon and must stay small.
"""
