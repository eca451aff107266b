"""What runs first in a container of a cluster: starts the task's processes and says how they ended. Standard library only."""
