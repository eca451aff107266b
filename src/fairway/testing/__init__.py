"""Public test support: builders, fakes, and the conformance suites that every engine and store must pass."""
