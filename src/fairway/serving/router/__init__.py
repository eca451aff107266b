"""The router in front of a service's replicas: an HTTP/1.1 proxy in its own process, and the code that starts and controls it.

The modules, bottom up: `head` and `chunks` parse messages strictly; `choice` picks the revision for a request; `counting` holds
counters; `upstream` is a connection to a backend and `place` a backend with its connections; `routes` is a plan prepared for
lookups; `desk` is the state that all connections of the process share; `exchange` is one request; `client` is a client's
connection; `process` is the process. `keeper` (standard library only) holds the listening socket and restarts the process;
`local` is the daemon's side.
"""
