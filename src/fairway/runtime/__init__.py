"""What user code imports inside a task. Standard library only, Python 3.9 and newer.

The folder is copied into every task, so it must import nothing else of Fairway.
It reads and writes the files that `contract.py` names; there is no connection to anything that could fail or block.
"""
