"""A load test: so many connections that always have one request under way, and what came of it."""
