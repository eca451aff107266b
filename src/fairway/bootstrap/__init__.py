"""The composition root: the only package that knows every part. One module a process: the daemon, and a cluster's operator."""
