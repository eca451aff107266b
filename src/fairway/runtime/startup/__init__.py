"""What Python imports by itself when a task starts; the engine copies it to the top of the folder on PYTHONPATH."""
