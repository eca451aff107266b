"""The routes of registered models and their versions."""
