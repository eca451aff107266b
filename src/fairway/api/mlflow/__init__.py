"""The face for MLflow clients: the REST routes that they call, over `app.tracking`. No MLflow is needed for it."""
