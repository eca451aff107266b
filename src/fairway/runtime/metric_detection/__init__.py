"""Detection of metrics of programs that report none: from printed lines and from files that frameworks write.

Only unmistakable metrics are read: names from a known list, followed by a number. Standard library only, Python 3.9 and newer.
"""
