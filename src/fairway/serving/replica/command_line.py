"""The command line of a replica."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

from fairway.serving.replica.batching.batcher import BatchLimits
from fairway.serving.replica.http.request_body import BodyLimits

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """The options with which a replica was started."""

    folder: Path
    name: str
    version: str
    labels: tuple[str, ...]
    format: str
    runtime: str
    allow_pickle: bool
    python: str
    host: str
    port: int
    threads: int
    batching: str
    """auto, always or never."""
    limits: BatchLimits
    bodies: BodyLimits
    sample_folder: Path | None
    sample_rate: float


def read(arguments: list[str] | None = None) -> ReplicaOptions:
    """Parse the command line; an error ends the process with status 2 and a message."""
    parsed = _parser().parse_args(arguments)
    return ReplicaOptions(
        folder=parsed.folder,
        name=parsed.name,
        version=parsed.version,
        labels=tuple(parsed.label),
        format=parsed.format,
        runtime=parsed.runtime,
        allow_pickle=parsed.allow_pickle,
        python=parsed.python,
        host=parsed.host,
        port=parsed.port,
        threads=parsed.threads,
        batching=parsed.batching,
        limits=BatchLimits(parsed.max_batch, parsed.max_queue, parsed.deadline, parsed.objective, parsed.max_body),
        bodies=BodyLimits(parsed.max_body, parsed.max_json, parsed.body_timeout, parsed.max_held),
        sample_folder=parsed.sample_folder,
        sample_rate=parsed.sample_rate,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fairway.serving.replica", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--folder", type=Path, required=True, help="folder of the model version")
    add("--name", type=_name, required=True, help="name of the model in paths and answers")
    add("--version", type=_name, default="1", help="version of the model")
    add("--label", type=_name, action="append", default=[], help="label of this version, for TF-Serving paths; may be repeated")
    add("--format", default="", help="onnx, skops, xgboost ...; default: detected from the files")
    add("--runtime", choices=("auto", "onnx", "torch", "savedmodel", "python"), default="auto")
    add("--allow-pickle", action="store_true", help="load files that can execute arbitrary code, such as pickles")
    add("--python", default="", help="interpreter for runtimes other than onnx; default: this one")
    add("--host", default="127.0.0.1", help="address to listen on; in a pod: 0.0.0.0")
    add("--port", type=int, default=0, help="port to listen on; 0: chosen by the kernel")
    add("--threads", type=_positive, default=1, help="threads for each run of the model")
    add(
        "--batching",
        choices=("auto", "always", "never"),
        default="auto",
        help="whether rows of several requests run together; auto: if fairway.json or a test at startup allows it",
    )
    add("--max-batch", type=_positive, default=64, help="maximum rows per batch")
    add("--max-queue", type=_positive, default=1024, help="maximum number of waiting requests")
    add(
        "--deadline",
        type=_seconds,
        default=30.0,
        help="maximum wait in seconds; requests that would wait longer are refused with 429",
    )
    add(
        "--objective",
        type=_seconds,
        default=0.0,
        help="target for the latency of answers in seconds, which limits batches; default: none",
    )
    add("--max-body", type=_positive, default=64 << 20, help="maximum bytes of a request's body, and of the outputs for it")
    add(
        "--max-json",
        type=_positive,
        default=16 << 20,
        help="maximum bytes of JSON in a request, and of outputs that are sent as JSON",
    )
    add(
        "--max-held",
        type=_positive,
        default=256 << 20,
        help="maximum bytes of all requests, their decoded data and unread answers together",
    )
    add("--body-timeout", type=_seconds, default=30.0, help="maximum seconds for a body to arrive")
    add("--sample-folder", type=Path, default=None, help="folder for sampled requests and answers")
    add("--sample-rate", type=_part, default=0.01, help="fraction of the requests to sample, 0 to 1")
    return parser


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        message = f"{text!r} is not a valid name; use letters, digits, '.', '_' and '-'"
        raise argparse.ArgumentTypeError(message)
    return text


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        message = f"{text!r} is not a whole number of at least 1"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < 1e9:
        message = f"{text!r} is not a valid number of seconds"
        raise argparse.ArgumentTypeError(message)
    return seconds


def _part(text: str) -> float:
    part = _seconds(text)
    if part > 1.0:
        message = f"{text!r} is not a valid fraction; use a number from 0 to 1"
        raise argparse.ArgumentTypeError(message)
    return part
