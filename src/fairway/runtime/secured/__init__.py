"""TLS of what the operator asks pods: a pod's certificate, the port that shows it, the side that dials. Standard library only."""
