"""Cases of the MLflow client, run by `tests/examples/test_mlflow_client.py` with the real client."""
