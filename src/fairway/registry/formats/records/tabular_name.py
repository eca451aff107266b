"""The names of input and outputs that the formats for rows of features share."""

from __future__ import annotations

INPUT = "input"
"""The features of a row, or its text."""
PREDICT = "predict"
"""The result of the model's own `predict`: labels of a classifier, values of a regressor."""
PROBABILITIES = "predict_proba"
"""The result of `predict_proba`, for models that have it."""
