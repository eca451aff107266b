"""Describes a replica's interface: an OpenAPI document generated from its routes and signature, and a page to view it."""
