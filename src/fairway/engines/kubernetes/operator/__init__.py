"""The operator: turns TrainingJob objects into runs, and runs into pods."""
