"""Compares the answers to copies of requests with the answers that clients got, in a process beside the router."""
