"""Connections of HTTP/2 to backends, each shared by many requests."""
