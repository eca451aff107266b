"""The processes of a service: replicas that answer requests, routers that distribute them, and the code that probes both."""
