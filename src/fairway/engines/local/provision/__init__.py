"""Prepares what a run needs before its tasks can start: code, interpreter, environment, data and Fairway's runtime package."""
