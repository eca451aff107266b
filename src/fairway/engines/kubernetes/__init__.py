"""The engine for a real Kubernetes cluster. `client` is the one door to its API; `objects` and `crds` are pure."""
