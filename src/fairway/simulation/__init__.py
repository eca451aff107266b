"""Simulation: replay traces with the scheduler on a virtual clock, and write reports."""
