"""The use cases: combine the pure planning code with I/O through the ports in `port.py`. The loop is in `loop.py`."""
