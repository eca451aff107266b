"""`fairway predict`: run a model over a dataset, as a job."""

from __future__ import annotations

import json
import os

from fairway.cli.argument_parser import FORMAT_SHORT, PLAN, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession
from fairway.cli.submission import print_plan, print_submitted, submit_jobs
from fairway.errors import RefusedError, UsageError
from fairway.sdk.submission import document, prediction
from fairway.sdk.transport.http import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMS = ("jsonl", "csv", "parquet", "npz")


def predict(options: CommandOptions) -> int:
    """Submit the job, and wait for it unless --detach is given."""
    if not options.text("data") or not options.text("out"):
        message = "--data and --out are required: what to read, and the dataset for the predictions"
        raise UsageError(message, fix="fairway predict mnist@champion --data new@2 --out scored")
    session = CommandSession(options)
    model = session.fetch(f"/v1/models/{quote(options.word())}")
    job_document = make_job(options, session.namespace, model, _rows(session, options.text("data")))
    if not options.on("plan"):
        session.announce()
    body = {
        "document": for_cluster(session, job_document, model) if session.cluster is not None else job_document,
        "origin": document.make_origin(os.getcwd(), interpreter=document.find_python()),
    }
    if options.on("plan"):
        return print_plan(session, "/v1/jobs", body)
    jobs = submit_jobs(session, body)
    if options.on("detach"):
        return print_submitted(session, jobs)
    from fairway.cli.terminal.run_follower import RunFollower

    code = RunFollower(session, jobs[0]).follow()
    # The program is Fairway's own: its exit code only means that it failed.
    return 1 if 0 < code < 128 else code


def make_job(options: CommandOptions, namespace: str, model: dict[str, Any], rows: str) -> dict[str, Any]:
    """Return the document of the job, in the Kubernetes spelling."""
    return prediction.prediction(
        namespace,
        model,
        rows,
        prediction.dataset_name(options.text("out"), "--out"),
        workers=options.number("workers") or 1,
        shard=options.number("shard") or 1000,
        batch=options.number("batch") or 256,
        python=options.text("python"),
        write=options.text("write") or "auto",
        resources=prediction.resources(options.text("cpus"), options.text("gpus")),
    )


def for_cluster(session: CommandSession, wanted: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    """Return the document with an image that has Fairway and with that image's interpreter; local rows are sent along."""
    options, spec = session.options, wanted["spec"]
    own = session.fetch("/v1/health")["image"] if model["format"] == "onnx" and not options.text("image") else ""
    prediction.in_image(wanted, prediction.image_for(model, options.text("image"), own, "--image IMAGE"), options.text("python"))
    worker = spec["roles"]["worker"]
    command = worker["command"]
    if os.path.exists(options.text("data")):
        del spec["data"]["rows"]
        command[command.index("{{data.rows}}")] = os.path.basename(os.path.abspath(options.text("data")))
        spec["code"] = {"path": "." if options.on("plan") else _send_rows(session, options.text("data"))}
    worker["command"] = command
    return wanted


def _send_rows(session: CommandSession, path: str) -> str:
    """Upload a file or a folder of rows in place of code; return the cluster's name for it."""
    import io
    import tarfile

    from fairway.registry.snapshot import LIMIT
    from fairway.units.quantity import show_bytes

    path, packed = os.path.abspath(path), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as archive:
        archive.add(path, os.path.basename(path))
        size = sum(member.size for member in archive.getmembers())
    if size > LIMIT:
        message = f"{path} holds {show_bytes(size)}, more than the {show_bytes(LIMIT)} that can be sent with a job"
        raise RefusedError(
            message, fix="put it where the nodes can read it: a dataset of the cluster, pvc://CLAIM/PATH, or a URI"
        )
    return str(json.loads(session.send_raw("/v1/code", packed.getvalue()))["code"])


def _rows(session: CommandSession, data: str) -> str:
    """Return a path, a URI, or a numbered version, so that a worker that starts later reads the same rows."""
    if os.path.exists(data):
        return os.path.abspath(data)
    if "/" in data:
        return data
    version = session.fetch(f"/v1/datasets/{quote(data)}")
    return f"{version['name']}@{version['version']}"


COMMANDS = {
    "": CliCommand(
        "predict",
        "Run a model over a dataset as a job, shard by shard; the predictions become a dataset version. "
        "If a worker is killed, no row is lost or predicted twice.",
        predict,
        words=(PositionalArgument("MODEL", "mnist, mnist@7 or mnist@champion"),),
        flags=(
            CommandFlag(
                "--data", "a dataset (new, or new@2), or a file or folder of .npy, .npz, .jsonl, .csv, .parquet, images", "DATA"
            ),
            CommandFlag("--out", "the dataset for the predictions", "NAME"),
            CommandFlag(
                "--write", f"format of the predictions: {', '.join(FORMS)} (default: that of the data)", "FORM", choices=FORMS
            ),
            CommandFlag("--cpus", "CPU cores per worker: 2, 500m; the model uses as many threads", "N"),
            CommandFlag("--gpus", "GPUs per worker: 1, 0.25, H100:1", "N"),
            CommandFlag("--workers -w", "number of workers that share the work (default: 1)", "N", number=True),
            CommandFlag("--shard", "rows per shard, which a worker claims at once (default: 1000)", "N", number=True),
            CommandFlag("--batch", "rows per call of the model (default: 256)", "N", number=True),
            CommandFlag("--python", "the interpreter or virtual environment that has the model's framework", "PATH"),
            CommandFlag(
                "--image",
                "on a cluster: an image with Fairway and the model's framework (default for ONNX: Fairway's own)",
                "IMAGE",
            ),
            CommandFlag("--detach -d", "do not wait for it"),
            PLAN,
            FORMAT_SHORT,
        ),
        examples=(
            "fairway predict mnist@champion --data new@2 --out scored",
            "fairway predict mnist --data rows.csv --out scored -w 4",
            "fairway predict resnet --data photos/ --out labels --write csv --cpus 2",
        ),
    )
}
