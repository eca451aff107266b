"""HTTP of a replica: connections, bodies, encodings, memory limits."""
