"""Access to an endpoint: API keys with rate limits, cross-origin requests (CORS), host names, and TLS.

`Desk.admit(head, peer, raw, secure)` is the one function that every protocol calls with the head of each request.
"""
