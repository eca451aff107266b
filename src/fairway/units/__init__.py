"""Small pure things that could be a library of their own: quantities, names, graph order, did-you-mean.

Pure: no I/O, no clock, no randomness. Imports nothing of Fairway but `errors`.
"""
