"""The operator: makes pods of runs, and runs of TrainingJob objects."""
