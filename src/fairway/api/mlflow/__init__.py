"""The interface for MLflow clients: the REST routes that they call, over `app.tracking`. It does not need MLflow."""
