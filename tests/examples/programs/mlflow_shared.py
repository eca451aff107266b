"""Trains with autologging, registers a version of a model that several jobs share, and tries to make it the champion."""

import json
import sys
from pathlib import Path

import mlflow
from mlflow.exceptions import MlflowException
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

folder, name = Path(sys.argv[1]), sys.argv[2]
client = mlflow.MlflowClient()
mlflow.sklearn.autolog(log_models=False)
with mlflow.start_run() as run:
    images, labels = load_digits(return_X_y=True)
    LogisticRegression(max_iter=20).fit(images[:200] / 16, labels[:200])
    with mlflow.start_run(nested=True) as inner:
        mlflow.log_metric("fold", 1.0)
    mlflow.log_artifact(str(folder / "model.onnx"), "net")
    if not client.search_registered_models("name = 'shared'"):
        client.create_registered_model("shared")
    version = client.create_model_version("shared", f"{run.info.artifact_uri}/net", run.info.run_id, tags={"by": name})
told = {"version": version.version, "params": dict(client.get_run(run.info.run_id).data.params), "refused": []}
for change in (
    lambda: client.set_registered_model_alias("shared", "champion", version.version),
    lambda: client.set_tag("first-1", "taken", name),
    lambda: client.log_metric("first-1", "loss", -1.0),
    lambda: client.update_registered_model("shared", f"of {name}"),
):
    try:
        change()
    except MlflowException as error:
        told["refused"].append([error.error_code, str(error)])
client.set_registered_model_alias("shared", f"of-{name}", version.version)
(folder / f"{name}.json").write_text(json.dumps(told))
