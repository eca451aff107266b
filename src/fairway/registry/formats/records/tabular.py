"""What the formats of models for rows of features share: the names of their input and outputs."""

from __future__ import annotations

INPUT = "input"
"""The features of a row, or its text."""
PREDICT = "predict"
"""What the model's own `predict` gives: labels of a classifier, values of a regressor."""
PROBABILITIES = "predict_proba"
"""What `predict_proba` gives, for models that have it."""
