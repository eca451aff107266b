"""Launch adapters: pure functions from (job, topology) to environment, argv and files, by which a framework finds its peers.

There is one file for each framework. The entry point is `render` in `render.py`.
"""
