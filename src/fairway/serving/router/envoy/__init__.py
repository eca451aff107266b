"""Envoy as the router."""
