"""Which place is best: the policies, each a score of every kind of task on a node in a given state.

Pure and deterministic: a score depends on the node's state, the task's needs and the workload mix, on nothing else.
"""
