"""The accelerators of this machine and the processes that use them. One probe per vendor."""
