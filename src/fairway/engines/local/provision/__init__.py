"""What a run needs before its tasks can start: code, interpreter, environment, data, and our runtime."""
