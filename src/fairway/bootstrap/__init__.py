"""The composition root: the only package that imports all others.

One module per process: the daemon, and a cluster's operator.
"""
