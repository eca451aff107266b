"""The router in front of a service's replicas: an HTTP/1.1 proxy of its own process, and what starts and tells it.

From the bottom: `head` and `chunks` read messages, strictly; `choice` says whose turn it is; `counting` counts; `upstream`
is a connection to a backend and `place` a backend with its connections; `routes` is a plan made ready; `desk` knows all that
goes on in the process; `exchange` is one request; `client` is a connection from outside; `process` is the process.
`keeper` (standard library only) holds the listening socket and starts the process again; `local` is the daemon's side.
"""
