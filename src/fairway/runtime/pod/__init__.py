"""The first process in a container of a cluster: starts the task's processes and reports their end. Standard library only."""
