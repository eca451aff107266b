"""Views: the models of API replies, and their rendering as text. One vocabulary for the API, the SDK and the command line.

Pure.
"""
