"""Runs of TrainingJob objects: intake, status, recovery."""
