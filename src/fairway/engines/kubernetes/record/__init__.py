"""The operator's record as an aggregated API of the cluster: its resources, its callers, and the objects that commands change."""
