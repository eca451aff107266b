"""Metrics of programs that report none: from the lines that they print and the files that their frameworks write.

Only what is unmistakable is read: names from a known list, with a number behind them.
Standard library only, Python 3.9 and newer.
"""
