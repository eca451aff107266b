"""The description of a replica's interface: an OpenAPI document made of its routes and its signature, and a page for it."""
