"""The engine for a real Kubernetes cluster. All API requests go through `client`; `objects` and `crds` are pure."""
