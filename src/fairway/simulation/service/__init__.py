"""Services on a virtual clock: load, replicas that start, answer, fail and die, and the rules of others to compare with."""
