"""The Kubernetes scheduler: feeds pods and nodes to the core in `plan/scheduling` and carries out its decisions as Bindings."""
