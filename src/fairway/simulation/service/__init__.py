"""Simulation of services on a virtual clock: load, replicas that start, answer and fail, and other autoscalers to compare."""
