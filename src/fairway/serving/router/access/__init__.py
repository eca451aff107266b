"""Who may ask an endpoint: API keys with rate limits, other origins (CORS), names of hosts, and TLS.

`Desk.admit(head, peer, raw, secure)` is the one function that every protocol calls with the head of each request.
"""
