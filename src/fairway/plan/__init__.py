"""What to do next: `(snapshot, now) -> Plan`. Nothing here reads a clock, a file or a random number.

Pure. `action.py` lists everything that an engine can be told.
"""
