"""Requests over HTTP/2, and connections that become tunnels (WebSockets)."""
