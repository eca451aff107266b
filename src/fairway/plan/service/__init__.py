"""What services do next: how many replicas, which version gets whose requests, and when a release goes back."""
