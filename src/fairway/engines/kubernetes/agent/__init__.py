"""The process of a node: what GPUs it has, whether they work, how busy they are."""
