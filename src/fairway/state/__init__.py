"""What is: jobs, tasks, nodes and devices at one instant, as frozen dataclasses.

Pure. Only `fold` makes new values from what an engine observed.
"""
