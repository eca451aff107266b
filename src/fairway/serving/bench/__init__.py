"""A load test: a number of connections that each always have one request in flight, and the measured results."""
