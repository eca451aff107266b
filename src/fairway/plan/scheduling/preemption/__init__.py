"""Which runs are evicted or moved to make room for others."""
