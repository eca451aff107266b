"""HTTP/2 (RFC 9113) and its header compression (RFC 7541), without a socket: the router and the replicas build on it."""
