"""Content-addressed blobs, and what is built on them: code snapshots and dataset versions."""
