"""How a framework learns its peers: pure functions from (job, topology) to environment, argv and files.

Pure. One file a framework. `render` in `render.py` is the one entry.
"""
