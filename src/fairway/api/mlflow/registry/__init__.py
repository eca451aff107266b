"""The routes about registered models and their versions."""
