"""A real Kubernetes cluster on this machine, for tests and for trying things out: `make cluster`, `make cluster-down`.

`programs` builds the programs once, `control_plane` runs etcd, the API server and the controllers, `kwok` adds pretended nodes,
`node` real ones; `fixtures` offers them to tests.
"""
