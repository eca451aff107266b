"""The process that places pods: the core of `plan/scheduling`, told of pods and nodes, carried out by Bindings."""
