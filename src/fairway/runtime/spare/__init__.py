"""A folder to put in front of PYTHONPATH: its `sitecustomize` makes an interpreter that starts wait for its program's turn."""
