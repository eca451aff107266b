"""The job of a batch prediction, as a document: what `fairway predict` and `Client.predict` submit."""

from __future__ import annotations

import os
import sys

from fairway.errors import RefusedError, UsageError
from fairway.units import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def prediction(
    namespace: str,
    model: dict[str, Any],
    rows: str,
    out: str,
    *,
    workers: int = 1,
    shard: int = 1000,
    batch: int = 256,
    python: str = "",
    write: str = "auto",
    resources: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The document of the job, in the Kubernetes spelling.

    `model`: the version; `rows`: where they lie; `out`: a dataset; `write`: the form of predictions; `resources`: of a worker.
    """
    from fairway.state import model as state_model

    version = f"{model['name']}@{model['version']}"
    command = [
        # -I: the copy of the runtime library that every task has on its path must not hide the whole of Fairway.
        *(sys.executable, "-I", "-m", "fairway.serving.predict"),
        *("--folder", "{{data.model}}", "--format", model["format"]),
        *("--data", "{{data.rows}}", "--out", "{{output.dataset}}"),
        *("--shard", str(shard), "--batch", str(batch)),
    ]
    # Both are left out by default: an image on a cluster may hold an older Fairway that does not know them.
    if write != "auto":
        command += ["--write", write]
    if resources and "cpu" in resources:
        command += ["--threads", str(_threads(resources["cpu"]))]
    if model["format"] != state_model.IN_REPLICA:
        # Consent was given when the version was registered, if its files need it.
        command += ["--allow-pickle", "--python", "python"]
    spec: dict[str, Any] = {
        "framework": "command",
        "data": {"model": f"model://{version}", "rows": rows},
        "outputs": {"dataset": out},
        # A worker that ends starts again alone; what it had in hand goes to another meanwhile.
        "restart": {"max": 3, "scope": "task"},
        "roles": {"worker": {"replicas": {"min": workers, "max": workers}, "command": command}},
    }
    if resources:
        spec["roles"]["worker"]["resources"] = resources
    if python:
        spec["environment"] = {"python": os.path.abspath(python)}
    return {
        "apiVersion": "fairway.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": names.suggest_name(f"predict-{model['name']}"), "namespace": namespace},
        "spec": spec,
    }


def resources(cpus: str, gpus: str) -> dict[str, Any]:
    """What a worker gets; empty: what tasks get that ask for nothing. `gpus`: 1, 0.25 or H100:1."""
    from fairway.sdk import document

    found: dict[str, Any] = {"cpu": cpus} if cpus else {}
    if gpus:
        kind, mark, count = document.split_gpus(gpus, "--gpus")
        found.update({"gpu": count, "gpuType": [kind]} if mark else {"gpu": count})
    return found


def _threads(cpu: str) -> int:
    """The threads of one run of the model: the whole cores of a worker, one at least."""
    try:
        return max(1, int(float(cpu.removesuffix("m")) / (1000 if cpu.endswith("m") else 1)))
    except ValueError:
        return 1  # the document's own check says what is wrong with it


def in_image(wanted: dict[str, Any], image: str, python: str = "") -> dict[str, Any]:
    """The same for a cluster: in an image that has Fairway, by the interpreter that is there."""
    wanted["spec"]["environment"] = {"image": image}
    worker = wanted["spec"]["roles"]["worker"]
    command = ["python3", *worker["command"][1:]]
    if python and "--python" in command:
        command[command.index("--python") + 1] = python
    worker["command"] = command
    return wanted


def image_for(model: dict[str, Any], image: str, own: str, how: str) -> str:
    """The image of the job: the one asked for, or Fairway's `own`, which runs ONNX alone. `how`: how one is named."""
    chosen = image or (own if model["format"] == "onnx" else "")
    if not chosen:
        message = f"{model['name']}@{model['version']} is of the format {model['format']}, which Fairway's own image cannot run"
        raise RefusedError(message, fix=f"name one that has Fairway and the model's framework: {how}")
    return chosen


def dataset_name(name: str, flag: str) -> str:
    """The name of the dataset that gets the predictions."""
    try:
        return names.check_name(name)
    except ValueError as error:
        message = f"{flag} {name} {error}"
        raise UsageError(message) from None
