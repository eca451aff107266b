"""Programs of init containers."""
