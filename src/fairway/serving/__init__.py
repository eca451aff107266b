"""The process inside a replica (`replica/`), and what sends requests to replicas."""
