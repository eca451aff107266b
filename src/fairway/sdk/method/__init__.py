"""How the methods of `Client` call the daemon: arguments, calls, replies."""
