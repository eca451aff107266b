"""The job document of a batch prediction, submitted by `fairway predict` and `Client.predict`."""

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
    """Return the document of the job, in the Kubernetes spelling.

    `model` is a version, `rows` the location of the rows, `out` a dataset, `write` the format of the predictions, and
    `resources` those of a worker.
    """
    from fairway.state import model as state_model

    version = f"{model['name']}@{model['version']}"
    command = [
        # -I: the copy of the runtime library on every task's path must not shadow the full Fairway package.
        *(sys.executable, "-I", "-m", "fairway.serving.predict"),
        *("--folder", "{{data.model}}", "--format", model["format"]),
        *("--data", "{{data.rows}}", "--out", "{{output.dataset}}"),
        *("--shard", str(shard), "--batch", str(batch)),
    ]
    # --write and --threads are omitted by default: an image on a cluster may hold an older Fairway without them.
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
        # A worker that ends is restarted alone; meanwhile its shards go to other workers.
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
    """Return the resources of a worker; empty for the defaults of tasks. `gpus` is 1, 0.25 or H100:1."""
    from fairway.sdk.submission import document

    fields: dict[str, Any] = {"cpu": cpus} if cpus else {}
    if gpus:
        kind, mark, count = document.split_gpus(gpus, "--gpus")
        fields.update({"gpu": count, "gpuType": [kind]} if mark else {"gpu": count})
    return fields


def _threads(cpu: str) -> int:
    """Return the number of threads for the model: the whole cores of a worker, at least one."""
    try:
        return max(1, int(float(cpu.removesuffix("m")) / (1000 if cpu.endswith("m") else 1)))
    except ValueError:
        return 1  # the check of the document reports the mistake


def in_image(wanted: dict[str, Any], image: str, python: str = "") -> dict[str, Any]:
    """Change the document for a cluster: set an image that has Fairway, and use that image's interpreter."""
    wanted["spec"]["environment"] = {"image": image}
    worker = wanted["spec"]["roles"]["worker"]
    command = ["python3", *worker["command"][1:]]
    if python and "--python" in command:
        command[command.index("--python") + 1] = python
    worker["command"] = command
    return wanted


def image_for(model: dict[str, Any], image: str, own: str, how: str) -> str:
    """Return the image of the job: `image`, or Fairway's `own`, which runs only ONNX. `how` names the option in the fix."""
    selected = image or (own if model["format"] == "onnx" else "")
    if not selected:
        message = f"{model['name']}@{model['version']} has the format {model['format']}, which Fairway's own image cannot run"
        raise RefusedError(message, fix=f"give an image that has Fairway and the model's framework: {how}")
    return selected


def dataset_name(name: str, flag: str) -> str:
    """Check and return the name of the dataset that gets the predictions."""
    try:
        return names.check_name(name)
    except ValueError as error:
        message = f"{flag} {name} {error}"
        raise UsageError(message) from None
