"""Views of services."""
