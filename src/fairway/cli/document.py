"""The flags that `run` and `submit` share, and the wishes that they make."""

from __future__ import annotations

import os

from fairway.cli.grammar import FORMATS, Flag, Options
from fairway.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairway.sdk.wishes import Wishes

FRAMEWORKS = ("auto", "pytorch", "tensorflow", "jax", "mpi", "mxnet", "command")

FLAGS = (
    Flag("--workers -w", "how many workers; they start together or not at all", "N", number=True),
    Flag("--name", "the series; runs are called NAME-1, NAME-2 ... (default: from the program)", "NAME"),
    Flag("--framework", f"how the workers find each other: {', '.join(FRAMEWORKS)}", "NAME", choices=FRAMEWORKS),
    Flag("--role", "what --workers and the resources are about (default: worker)", "NAME"),
    Flag("--processes", "processes a worker (default: one a GPU, else one)", "N", number=True),
    Flag("--gpus", "GPUs a worker: 1, 0.25, H100:8; 0 for none", "N"),
    Flag("--cpus", "cores a worker: 2, 500m", "N"),
    Flag("--memory", "memory a worker: 512Mi, 2Gi", "SIZE"),
    Flag("--env -e", "a variable; NAME alone hands on yours; may be given again", "NAME=VALUE", many=True),
    Flag("--python", "an interpreter or a virtual environment (default: the `python` on your PATH)", "PATH"),
    Flag("--requirements", "make a cached environment from this file", "FILE"),
    Flag("--timeout", "the longest it may run: 90s, 5m, 48h", "TIME"),
    Flag("--retries", "failures that are forgiven (default: what the document says; 0 for a command)", "N", number=True),
    Flag("--stop-at-step", "end as succeeded when this step is reported", "N", number=True),
    Flag("--stop-when", "end as succeeded when this holds: 'accuracy >= 0.98'", "CONDITION"),
    Flag("--data", "an input: $FAIRWAY_DATA_NAME; may be given again", "NAME=WHERE", many=True),
    Flag("--secret", "a secret that becomes a variable; may be given again", "NAME", many=True),
    Flag(
        "--output", "keep what lies in $FAIRWAY_OUTPUT_KEY under a name: model=mnist; may be given again", "KEY=NAME", many=True
    ),
    Flag("--label -l", "a label of the run; may be given again", "KEY=VALUE", many=True),
    Flag("--queue", "the queue to wait in (default: default)", "NAME"),
    Flag("--priority", "higher goes first", "N"),
    Flag("--snapshot", "run a copy of the folder as it is now"),
    Flag("--in-place", "run in the folder itself"),
)
_TEXTS = ("name", "role", "gpus", "cpus", "memory", "framework", "python", "requirements", "timeout", "stop-when", "queue")
_PATHS = ("python", "requirements")
_NUMBERS = ("workers", "processes", "retries", "stop-at-step")


def read_wishes(options: Options) -> Wishes:
    """What the flags say."""
    if options.on("snapshot") and options.on("in-place"):
        message = "--snapshot and --in-place say opposite things"
        raise UsageError(message, fix="keep one of them")
    found: dict[str, object] = {key.replace("-", "_"): options.text(key) for key in _TEXTS if options.text(key)}
    for key in _PATHS:
        # What is typed is meant from where it is typed, wherever the document lies; a plain name is looked for on the PATH.
        if os.sep in str(found.get(key, "")):
            found[key] = os.path.abspath(str(found[key]))
    found.update((key.replace("-", "_"), options.number(key)) for key in _NUMBERS if options.number(key) is not None)
    if options.text("priority"):
        found["priority"] = _whole(options, "priority")
    maps = {
        "env": _variables(options),
        "data": options.pairs("data"),
        "outputs": _outputs(options),
        "labels": options.pairs("label"),
    }
    found.update((name, value) for name, value in maps.items() if value)
    if options.many("secret"):
        found["secrets"] = options.many("secret")
    return found  # type: ignore[return-value]


def _variables(options: Options) -> dict[str, str]:
    found = {}
    for text in options.many("env"):
        name, mark, value = text.partition("=")
        if not mark:
            if name not in os.environ:
                message = f"--env {name}: you have no variable of that name"
                raise UsageError(message, fix=f"write --env {name}=VALUE")
            value = os.environ[name]
        found[name] = value
    return found


def _outputs(options: Options) -> dict[str, str]:
    for text in options.many("output"):
        if text in FORMATS:
            message = f"--output {text}: here --output is what the run leaves behind"
            raise UsageError(message, fix=f"write -o {text} for the format")
    return options.pairs("output")


def _whole(options: Options, key: str) -> int:
    text = options.text(key)
    try:
        return int(text)
    except ValueError:
        message = f"--{key} {text}: a whole number is needed"
        raise UsageError(message) from None
