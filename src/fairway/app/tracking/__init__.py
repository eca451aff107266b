"""Use cases of the MLflow clients: runs, experiments, registered models."""
