"""Engines: they carry out plans and report what they observe. No engine imports another."""
