"""Compares the responses to copies of requests with those that clients got, in a process beside the router."""
