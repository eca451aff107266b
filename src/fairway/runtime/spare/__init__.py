"""A folder for the front of PYTHONPATH: its `sitecustomize` makes a new interpreter wait as a spare for its program."""
