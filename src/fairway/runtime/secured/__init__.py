"""TLS for requests of the operator to pods: the pod's certificate, its port, and the client side. Standard library only."""
