"""Nodes reserved for blocked runs, and the backfill around them."""
