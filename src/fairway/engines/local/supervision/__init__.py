"""The process beside each task: starts its processes, waits, ends them, and records how they ended.

Standard library only, except for the records that the daemon reads too: it runs apart from the daemon and must stay small.
"""
