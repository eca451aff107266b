"""Planning: pure functions from the recorded state to the next actions, `(snapshot, now) -> Plan`.

Nothing here reads a clock, a file or a random number. `action.py` lists the actions that an engine can be given.
"""
