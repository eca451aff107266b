"""The simulated engine: the `Engine` port on a virtual clock. Tasks are entries in a table and last as long as a script says.

It does no I/O and never looks at the time of the machine; it knows nothing of the other engines.
"""
