"""The agent of a node: reports which GPUs it has, whether they are healthy, and how busy they are."""
