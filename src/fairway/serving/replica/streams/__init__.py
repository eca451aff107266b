"""HTTP/2 at a replica: calls of gRPC on a short way to the model, everything else on the way of HTTP/1.1."""
