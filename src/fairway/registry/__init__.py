"""Content-addressed blobs, and what is built on them: code snapshots, and versions of datasets and models."""
