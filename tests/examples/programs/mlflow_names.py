"""Registers models with similar names, and loads each by the name that it was registered with."""

import json
import sys
from pathlib import Path

import mlflow

folder = Path(sys.argv[1])
names = ["ResNet50", "ResNet18", "resnet50", "模型"]
client = mlflow.MlflowClient()
with mlflow.start_run() as run:
    for name in names:
        mlflow.log_artifact(str(folder / f"{names.index(name)}" / "model.onnx"), f"net-{names.index(name)}")
        client.create_registered_model(name)
        client.create_model_version(name, f"{run.info.artifact_uri}/net-{names.index(name)}", run.info.run_id)
told = {}
for name in names:
    known, version = client.get_registered_model(name), client.get_model_version(name, "1")
    read = Path(mlflow.artifacts.download_artifacts(f"models:/{name}/1")) / "model.onnx"
    told[name] = [known.name, version.name, known.latest_versions[0].name, read.read_bytes().hex()]
found = [each.name for each in client.search_registered_models()]
(folder / "told.json").write_text(json.dumps({"models": told, "found": found}))
