"""Train a classifier of digits and save it as a skops file, which is served without conversion."""

import os

import skops.io
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

images, digits = load_digits(return_X_y=True)
train, test, train_digits, test_digits = train_test_split(images, digits, random_state=0)
model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)).fit(train, train_digits)
print(f"accuracy={model.score(test, test_digits):.4f}")
skops.io.dump(model, os.path.join(os.environ["FAIRWAY_OUTPUT_MODEL"], "model.skops"))
