"""What is spoken: Open Inference Protocol v2, TF-Serving REST, OpenAI. Each turns bytes into arrays and arrays into bytes."""
