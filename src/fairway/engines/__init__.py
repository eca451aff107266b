"""Engines do what a plan says, and tell what they see. Each is unaware of the others."""
