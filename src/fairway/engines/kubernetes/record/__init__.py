"""The operator's record as an API of the cluster: what is in it, who asks, and the objects by which callers change things."""
