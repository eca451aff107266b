"""The objects that make up a run on a cluster, as plain data: pods, a Service, a ConfigMap. Pure."""
