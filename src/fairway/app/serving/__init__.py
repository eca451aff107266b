"""The part of the loop that reconciles services."""
