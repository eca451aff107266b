"""The version of Fairway, read by packaging, the daemon and the command line."""

VERSION = "0.1.0"
__version__ = VERSION
