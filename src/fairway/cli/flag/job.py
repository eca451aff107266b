"""The flags that `run` and `submit` share, and their conversion into the fields of a document."""

from __future__ import annotations

import os

from fairway.cli.argument_parser import FORMATS, CommandFlag, CommandOptions
from fairway.errors import SpecError, UsageError
from fairway.sdk.submission.document import split_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairway.sdk.run_option import RunOptions

FRAMEWORKS = ("auto", "pytorch", "tensorflow", "jax", "mpi", "mxnet", "command")

FLAGS = (
    CommandFlag("--workers -w", "number of workers; they start together or not at all", "N", number=True),
    CommandFlag("--name", "the series; runs are called NAME-1, NAME-2 ... (default: from the program)", "NAME"),
    CommandFlag(
        "--framework",
        f"framework by which the workers find each other: {', '.join(FRAMEWORKS)}",
        "NAME",
        choices=FRAMEWORKS,
    ),
    CommandFlag("--ps", "number of parameter servers, in addition to the workers", "N", number=True),
    CommandFlag(
        "--role",
        "number of tasks of a role: ps=2; may be given again. NAME alone: the role that --workers and the resources apply to",
        "NAME[=N]",
        many=True,
    ),
    CommandFlag("--processes", "processes per worker (default: one per GPU, else one)", "N", number=True),
    CommandFlag("--gpus", "GPUs per worker: 1, 0.25, H100:8; 0 for none", "N"),
    CommandFlag("--cpus", "CPU cores per worker: 2, 500m", "N"),
    CommandFlag("--memory", "memory per worker: 512Mi, 2Gi", "SIZE"),
    CommandFlag("--memory-limit", "memory limit; a worker that exceeds it is killed: 4Gi", "SIZE"),
    CommandFlag(
        "--env -e", "an environment variable; NAME alone passes on your value; may be given again", "NAME=VALUE", many=True
    ),
    CommandFlag("--python", "an interpreter or a virtual environment (default: the `python` on your PATH)", "PATH"),
    CommandFlag("--requirements", "build a cached environment from this file", "FILE"),
    CommandFlag("--timeout", "maximum run time: 90s, 5m, 48h", "TIME"),
    CommandFlag(
        "--retries", "number of restarts after failures (default: that of the document; 0 for a command)", "N", number=True
    ),
    CommandFlag("--stop-at-step", "end the run as succeeded when this step is reported", "N", number=True),
    CommandFlag("--stop-when", "end the run as succeeded when this condition holds: 'accuracy >= 0.98'", "CONDITION"),
    CommandFlag("--metrics-pattern", "read metrics from log lines: 'step (?P<step>\\d+) loss (?P<loss>\\S+)'", "REGEX"),
    CommandFlag("--tensorboard-dir", "read metrics from event files in this folder (default: the usual folders)", "DIR"),
    CommandFlag("--data", "an input dataset or path, passed as $FAIRWAY_DATA_NAME; may be given again", "NAME=WHERE", many=True),
    CommandFlag("--secret", "a secret, passed as an environment variable; may be given again", "NAME", many=True),
    CommandFlag(
        "--output",
        "register the content of $FAIRWAY_OUTPUT_KEY under a name: model=mnist; may be given again",
        "KEY=NAME",
        many=True,
    ),
    CommandFlag("--label -l", "a label of the run; may be given again", "KEY=VALUE", many=True),
    CommandFlag(
        "--log-limit",
        "how much of the newest output of each process to keep: 64Mi, 4Gi; 0 for everything (default: 256Mi)",
        "SIZE",
    ),
    CommandFlag("--queue", "the queue to wait in (default: default)", "NAME"),
    CommandFlag("--priority", "the priority; higher starts first", "N"),
    CommandFlag("--snapshot", "run a copy of the folder as it is now"),
    CommandFlag("--in-place", "run in the folder itself"),
)
_TEXTS = (
    *("name", "gpus", "cpus", "memory", "memory-limit", "framework", "python", "requirements", "timeout", "stop-when"),
    *("metrics-pattern", "tensorboard-dir", "queue", "log-limit"),
)
_PATHS = ("python", "requirements")
_NUMBERS = ("workers", "processes", "retries", "stop-at-step")


def with_unit(options: CommandOptions, key: str, unit: str) -> str:
    """Return a value that needs a unit; refuse a bare number, which would mean bytes or seconds and is rarely intended."""
    text = options.text(key)
    if text.replace(".", "", 1).isdecimal():
        message = f"--{key} {text}: the unit is missing"
        raise UsageError(message, fix=f"write --{key} {text}{unit}")
    return text


def read_wishes(options: CommandOptions) -> RunOptions:
    """Return the wishes that the flags express."""
    if options.on("snapshot") and options.on("in-place"):
        message = "--snapshot and --in-place contradict each other"
        raise UsageError(message, fix="keep one of them")
    with_unit(options, "memory", "Gi")
    with_unit(options, "memory-limit", "Gi")
    if options.text("gpus"):
        split_gpus(options.text("gpus"), "--gpus")
    if options.number("workers") == 0:
        message = "--workers 0: at least one is needed"
        raise UsageError(message, fix="leave it out, or write --workers 1")
    wishes: dict[str, object] = {key.replace("-", "_"): options.text(key) for key in _TEXTS if options.text(key)}
    for key in _PATHS:
        # A path is relative to the current folder, not to the document's; a plain name is searched on the PATH.
        if os.sep in str(wishes.get(key, "")):
            wishes[key] = os.path.abspath(str(wishes[key]))
    wishes.update((key.replace("-", "_"), options.number(key)) for key in _NUMBERS if options.number(key) is not None)
    wishes.update(_roles(options))
    if options.text("priority"):
        wishes["priority"] = _whole(options, "priority")
    maps = {
        "env": _variables(options),
        "data": options.pairs("data"),
        "outputs": _outputs(options),
        "labels": options.pairs("label"),
    }
    wishes.update((name, value) for name, value in maps.items() if value)
    if options.many("secret"):
        wishes["secrets"] = options.many("secret")
    return wishes  # type: ignore[return-value]


_FIELDS = {
    "gpus": ("resources.gpu", "resources.gpuType"),
    "cpus": ("resources.cpu",),
    "memory": ("resources.memory",),
    "memory-limit": ("limits.memory",),
    "workers": ("replicas",),
    "replicas": ("replicas",),
    "processes": ("processes",),
    "stop-at-step": ("stop.atStep",),
    "stop-when": ("stop.when",),
    "retries": ("restart.max",),
    "label": ("labels",),
    "output": ("outputs",),
    "secret": ("secrets",),
    "p95": ("objective.p95",),
    **{key: (key,) for key in ("name", "env", "data", "timeout", "queue", "priority", "framework", "port", "ready")},
    **{key: (f"environment.{key}",) for key in ("python", "requirements")},
}
"""The document fields that each flag sets."""


def name_flags(error: SpecError, options: CommandOptions) -> None:
    """Replace the paths of mistakes by the flags that set these fields: the user typed flags and wrote no document."""
    for mistake in error.mistakes:
        parts = mistake.path.split(".")
        path = ".".join(parts[3:] if parts[:2] == ["spec", "roles"] else parts[1:])
        for flag, fields in _FIELDS.items():
            field = next((candidate for candidate in fields if path == candidate or path.startswith(f"{candidate}.")), "")
            if field and options.on(flag):
                key = path[len(field) :].lstrip(".") if field in ("env", "data", "labels", "outputs") else ""
                mistake.path = f"--{flag} {key}".rstrip()
                mistake.file, mistake.line, mistake.column = "", 0, 0
                break


def _roles(options: CommandOptions) -> dict[str, object]:
    """Return the role that the other flags apply to, and the number of tasks of each role."""
    subjects = [text for text in options.many("role") if "=" not in text]
    if len(subjects) > 1:
        message = f"--role {subjects[0]} and --role {subjects[1]}: the other flags apply to one role only"
        raise UsageError(message, fix=f"write --role {subjects[1]}=N for the number of its tasks")
    counts: dict[str, int] = {}
    for text in options.many("role"):
        name, mark, number = text.partition("=")
        if mark:
            if not name or not number.isdecimal() or not int(number):
                message = f"--role {text}: expected a role and the number of its tasks"
                raise UsageError(message, fix="write for example --role ps=2")
            counts[name] = int(number)
    servers = options.number("ps")
    if servers is not None:
        if not servers or "ps" in counts:
            message = f"--ps {servers}: " + ("ps is also given with --role" if servers else "at least one is needed")
            raise UsageError(message, fix="leave one of them out" if servers else "leave it out")
        counts["ps"] = servers
    wishes: dict[str, object] = {"role": subjects[0]} if subjects else {}
    return {**wishes, "roles": counts} if counts else wishes


def _variables(options: CommandOptions) -> dict[str, str]:
    variables = {}
    for text in options.many("env"):
        name, mark, value = text.partition("=")
        if not mark:
            if name not in os.environ:
                message = f"--env {name}: this variable is not set in your environment"
                raise UsageError(message, fix=f"write --env {name}=VALUE")
            value = os.environ[name]
        variables[name] = value
    return variables


def _outputs(options: CommandOptions) -> dict[str, str]:
    for text in options.many("output"):
        if text in FORMATS:
            message = f"--output {text}: with this verb, --output names what the run produces"
            raise UsageError(message, fix=f"write -o {text} to choose the format")
    return options.pairs("output")


def _whole(options: CommandOptions, key: str) -> int:
    text = options.text(key)
    try:
        return int(text)
    except ValueError:
        message = f"--{key} {text}: a whole number is needed"
        raise UsageError(message) from None
