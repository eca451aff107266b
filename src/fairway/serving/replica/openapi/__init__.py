"""The description of a replica's interface: an OpenAPI document generated from its routes and its signature, and a page to view
it.
"""
