"""How the client reaches a daemon or a cluster, and when it retries."""
