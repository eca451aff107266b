"""The protocols: Open Inference Protocol v2, TF-Serving REST, OpenAI. Each converts bytes to arrays and arrays to bytes."""
