"""The Python face: `Client` and `AsyncClient`, and below them the wire to the daemon and how it is found and started.

Does I/O. Importing the package imports nothing else: the command line uses `wire`, `place` and `daemon`
alone, and those keep to the few cheap modules of the standard library.
"""
