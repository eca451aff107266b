"""The router as the daemon sees it: its processes, ports and adapters."""
