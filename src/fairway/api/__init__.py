"""The HTTP face: thin routes over `app`."""
