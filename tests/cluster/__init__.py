"""A real Kubernetes cluster on this machine, for tests and for experiments: `make cluster`, `make cluster-down`.

`programs` builds the binaries once, `control_plane` runs etcd, the API server and the controllers, `kwok` adds simulated nodes,
`node` real ones; `fixtures` offers them to tests.
"""
