"""The Python SDK: `Client` and `AsyncClient`, and below them the protocol to the daemon, its discovery and its start.

Does I/O. Importing the package imports nothing else: the command line uses only `wire`, `place` and `daemon`,
which import only a few cheap modules of the standard library.
"""
