"""The processes of a service: replicas that answer, routers that share requests out, and who looks at them."""
