"""What you see: the wire models, and how they look as text. One vocabulary for the API, the SDK and the command line.

Pure.
"""
