"""What runs a model: `onnx` in this process, `process` everything else in a worker under the user's interpreter."""
