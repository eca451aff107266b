"""Modules that Python imports by itself when a task starts; the engine copies them to the top of the folder on PYTHONPATH."""
