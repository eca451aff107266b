"""HTTP/2 at a replica: gRPC inference takes a fast path to the model, all other requests take the path of HTTP/1.1."""
