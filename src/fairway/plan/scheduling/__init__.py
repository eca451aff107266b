"""Who goes first, and what fits where.

Pure. First in, first out with priorities; what is blocked keeps its place, and what is behind it may start
only where that takes nothing from it.
"""
