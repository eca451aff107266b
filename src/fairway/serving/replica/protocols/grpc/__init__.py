"""The gRPC interfaces: Open Inference Protocol v2, TensorFlow Serving, health checks and reflection.

The few messages are decoded and encoded here (`proto_definition.py`, `protobuf.py`), without a Protocol Buffers runtime: this
decodes the hot message faster, requires no dependency, and cannot clash with descriptors of the user's process.
"""
