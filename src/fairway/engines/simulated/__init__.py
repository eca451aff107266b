"""The simulated engine: the `Engine` port on a virtual clock. Tasks are table entries that last as long as a script says.

It does no I/O, never reads the machine's clock, and imports no other engine.
"""
