"""The runtimes of models: `onnx` in this process, `process` for all others, in a worker under the user's interpreter."""
