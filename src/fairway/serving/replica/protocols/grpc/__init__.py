"""The interfaces of gRPC: the Open Inference Protocol v2, TensorFlow Serving, health checks and reflection.

The few messages are read and written here (`definitions.py`, `wire.py`), without a runtime of Protocol Buffers: the hot message
is read faster so, nothing has to be installed, and no descriptor can clash with those of a user's process.
"""
