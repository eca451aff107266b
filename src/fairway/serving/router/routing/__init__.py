"""Which backend gets a request, and what is counted, copied and repeated."""
