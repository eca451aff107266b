"""Fast implementations of the ports, for tests."""
