"""The version of Fairway, in the one place that packaging, the daemon and the command line read."""

VERSION = "0.1.0"
__version__ = VERSION
