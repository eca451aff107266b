"""What a run consists of on a cluster, as plain data: pods, a Service, a ConfigMap. Pure."""
