"""What a router shows of its service: metrics, the access log, traces, and answers to probes while no replica is there."""
