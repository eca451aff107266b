"""Observation of a service by its router: metrics, the access log, traces, and answers to probes while there is no replica."""
