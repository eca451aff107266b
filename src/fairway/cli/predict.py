"""`fairway predict`: run a model over a dataset, as a job."""

from __future__ import annotations

import json
import os
import sys

from fairway.cli.grammar import FORMAT_SHORT, PLAN, Command, Flag, Options, Word
from fairway.cli.session import Session
from fairway.cli.submission import print_plan, print_submitted, submit_jobs
from fairway.errors import RefusedError, UsageError
from fairway.sdk import document
from fairway.sdk.wire import quote
from fairway.units import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def predict(options: Options) -> int:
    """Submit the job, and wait for it unless told otherwise."""
    if not options.text("data") or not options.text("out"):
        message = "--data and --out are needed: what to read, and the dataset that gets the predictions"
        raise UsageError(message, fix="fairway predict mnist@champion --data new@2 --out scored")
    session = Session(options)
    model = session.fetch(f"/v1/models/{quote(options.word())}")
    wanted = make_job(options, session.namespace, model, _rows(session, options.text("data")))
    if not options.on("plan"):
        session.announce()
    body = {
        "document": for_cluster(session, wanted, model) if session.cluster is not None else wanted,
        "origin": document.make_origin(os.getcwd(), interpreter=document.find_python()),
    }
    if options.on("plan"):
        return print_plan(session, "/v1/jobs", body)
    jobs = submit_jobs(session, body)
    if options.on("detach"):
        return print_submitted(session, jobs)
    from fairway.cli.follow import Follower

    return Follower(session, jobs[0]).follow()


def make_job(options: Options, namespace: str, model: dict[str, Any], rows: str) -> dict[str, Any]:
    """The document of the job, in the Kubernetes spelling."""
    from fairway.state import model as state_model

    version = f"{model['name']}@{model['version']}"
    out = _dataset(options.text("out"))
    workers = options.number("workers") or 1
    command = [
        # -I: the copy of the runtime library that every task has on its path must not hide the whole of Fairway.
        *(sys.executable, "-I", "-m", "fairway.serving.predict"),
        *("--folder", "{{data.model}}", "--format", model["format"]),
        *("--data", "{{data.rows}}", "--out", "{{output.dataset}}"),
        *("--shard", str(options.number("shard") or 1000), "--batch", str(options.number("batch") or 256)),
    ]
    if model["format"] in state_model.CODE_FORMATS:
        # Consent was given when the version was registered.
        command.append("--allow-pickle")
    if model["format"] != "onnx":
        command += ["--python", "python"]
    spec: dict[str, Any] = {
        "framework": "command",
        "data": {"model": f"model://{version}", "rows": rows},
        "outputs": {"dataset": out},
        # A worker that ends starts again alone; what it had in hand goes to another meanwhile.
        "restart": {"max": 3, "scope": "task"},
        "roles": {"worker": {"replicas": {"min": workers, "max": workers}, "command": command}},
    }
    if options.text("python"):
        spec["environment"] = {"python": os.path.abspath(options.text("python"))}
    return {
        "apiVersion": "fairway.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": names.suggest_name(f"predict-{model['name']}"), "namespace": namespace},
        "spec": spec,
    }


def for_cluster(session: Session, wanted: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    """The same in an image that has Fairway, by the interpreter that is there; rows of this machine go along."""
    options, spec = session.options, wanted["spec"]
    image = options.text("image") or (session.fetch("/v1/health")["image"] if model["format"] == "onnx" else "")
    if not image:
        message = f"{model['name']}@{model['version']} is of the format {model['format']}, which Fairway's own image cannot run"
        raise RefusedError(message, fix="name one that has Fairway and the model's framework: --image IMAGE")
    spec["environment"] = {"image": image}
    worker = spec["roles"]["worker"]
    command = ["python3", *worker["command"][1:]]
    if options.text("python") and "--python" in command:
        command[command.index("--python") + 1] = options.text("python")
    if os.path.exists(options.text("data")):
        del spec["data"]["rows"]
        command[command.index("{{data.rows}}")] = os.path.basename(os.path.abspath(options.text("data")))
        spec["code"] = {"path": "." if options.on("plan") else _send_rows(session, options.text("data"))}
    worker["command"] = command
    return wanted


def _send_rows(session: Session, path: str) -> str:
    """Send a file or a folder of rows in the place of code; what the cluster calls it."""
    import io
    import tarfile

    from fairway.registry.snapshot import LIMIT
    from fairway.units.quantity import show_bytes

    path, packed = os.path.abspath(path), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as archive:
        archive.add(path, os.path.basename(path))
        size = sum(member.size for member in archive.getmembers())
    if size > LIMIT:
        message = f"{path} holds {show_bytes(size)}, more than the {show_bytes(LIMIT)} that are sent along"
        raise RefusedError(message, fix="name it where nodes reach it: a dataset of the cluster, pvc://CLAIM/PATH, or a URI")
    return str(json.loads(session.send_raw("/v1/code", packed.getvalue()))["code"])


def _rows(session: Session, data: str) -> str:
    """What the rows are: a path, a URI, or a version by its number, so that a worker that starts later reads the same."""
    if os.path.exists(data):
        return os.path.abspath(data)
    if "/" in data:
        return data
    version = session.fetch(f"/v1/datasets/{quote(data)}")
    return f"{version['name']}@{version['version']}"


def _dataset(name: str) -> str:
    try:
        return names.check_name(name)
    except ValueError as error:
        message = f"--out {name} {error}"
        raise UsageError(message) from None


COMMANDS = {
    "": Command(
        "predict",
        "Run a model over a dataset as a job, shard by shard; the predictions become a dataset version. "
        "A worker that is killed leaves no gap and no double.",
        predict,
        words=(Word("MODEL", "mnist, mnist@7 or mnist@champion"),),
        flags=(
            Flag("--data", "a dataset (new, or new@2), or a file or folder of .npy, .npz, .jsonl or .csv", "DATA"),
            Flag("--out", "the dataset that gets the predictions", "NAME"),
            Flag("--workers -w", "how many share the work (default: 1)", "N", number=True),
            Flag("--shard", "rows that a worker takes at once (default: 1000)", "N", number=True),
            Flag("--batch", "rows that the model gets at once (default: 256)", "N", number=True),
            Flag("--python", "the interpreter or virtual environment that has the model's framework", "PATH"),
            Flag(
                "--image", "on a cluster: one with Fairway and the model's framework (default for ONNX: Fairway's own)", "IMAGE"
            ),
            Flag("--detach -d", "do not wait for it"),
            PLAN,
            FORMAT_SHORT,
        ),
        examples=(
            "fairway predict mnist@champion --data new@2 --out scored",
            "fairway predict mnist --data rows.csv --out scored -w 4",
        ),
    )
}
