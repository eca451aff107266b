"""Batching of requests, and the proof that it is safe."""
