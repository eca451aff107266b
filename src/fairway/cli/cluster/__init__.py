"""What the command line does on a cluster only: pods of tasks, uploads."""
