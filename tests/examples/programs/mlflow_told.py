"""Logs with a real MLflow client while its test observes: nested runs, a daemon that ends, a server of its own."""

import json
import os
import sys
import time
from pathlib import Path

import mlflow

marks = Path(sys.argv[1])


def wait_for(name: str) -> None:
    while not (marks / name).exists():
        time.sleep(0.05)


with mlflow.start_run() as run:
    print("the token is", os.environ["MLFLOW_TRACKING_TOKEN"])
    mlflow.log_metric("loss", 1.0, step=1)
    with mlflow.start_run(nested=True, run_name="inner") as inner:
        mlflow.log_param("fold", 1)
        mlflow.log_metric("loss", 7.0, step=1)
    (marks / "logged").write_text("")
    wait_for("restarted")
    mlflow.log_metric("loss", 0.5, step=2)
    mlflow.log_text("kept", "notes/late.txt")
client = mlflow.MlflowClient()
history = [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, "loss")]
children = client.search_runs([run.info.experiment_id], f"tags.mlflow.parentRunId = '{run.info.run_id}'")
best = client.search_runs([run.info.experiment_id], "metrics.loss < 5", order_by=["metrics.loss ASC"])

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
mlflow.set_tracking_uri((marks / "elsewhere").as_uri())
mlflow.set_experiment("elsewhere")
with mlflow.start_run() as elsewhere:
    mlflow.log_metric("loss", 3.0)

told = {
    "run": run.info.run_id,
    "inner": inner.info.run_id,
    "history": history,
    "children": [(child.info.run_id, child.data.params) for child in children],
    "best": [found.info.run_id for found in best],
    "elsewhere": elsewhere.info.run_id,
}
(marks / "told.json").write_text(json.dumps(told))
