"""Batch prediction: the program of a job that runs a model over a dataset, shard by shard."""
