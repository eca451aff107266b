"""Small pure helpers that are independent of Fairway: quantities, names, graph order, did-you-mean.

Pure: no I/O, no clock, no randomness. Imports nothing of Fairway but `errors`.
"""
