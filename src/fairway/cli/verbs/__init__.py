"""One module for each verb, in the groups of `fairway --help`."""
