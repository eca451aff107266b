"""From flags to a document, and what goes with it: the body of a submit."""

from __future__ import annotations

import os
import sys

from fairway.cli.grammar import FORMATS, Flag, Options
from fairway.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
    Flag("--retries", "failures that are forgiven (default: 3; 0 with `run -- COMMAND`)", "N", number=True),
    Flag("--stop-at-step", "end as succeeded when this step is reported", "N", number=True),
    Flag("--stop-when", "end as succeeded when this holds: 'accuracy >= 0.98'", "CONDITION"),
    Flag("--data", "an input: $FAIRWAY_DATA_NAME; may be given again", "NAME=WHERE", many=True),
    Flag("--secret", "a secret that becomes a variable; may be given again", "NAME", many=True),
    Flag("--output", "keep what lies in $FAIRWAY_OUTPUT_KEY under a name: model=mnist; may be given again", "KEY=NAME", many=True),
    Flag("--priority", "higher goes first", "N"),
    Flag("--snapshot", "run a copy of the folder as it is now"),
    Flag("--in-place", "run in the folder itself"),
)
"""The flags that `run` and `submit` share."""


def from_command(options: Options, namespace: str) -> dict[str, Any]:
    """The document for a command given on the command line."""
    role: dict[str, Any] = {"command": options.rest, **_role_part(options)}
    metadata = {"name": options.text("name") or suggest_name(options.rest), "namespace": namespace}
    in_place = not options.on("snapshot")
    spec: dict[str, Any] = {
        "code": {"path": ".", "in_place": in_place},
        # A command typed by hand that fails should say so, not start again behind one's back.
        "restart": {"max": 0},
        "roles": {options.text("role", "worker"): role},
    }
    spec.update(job_part(options))
    return {"api_version": "fairway.dev/v1alpha1", "kind": "TrainingJob", "metadata": metadata, "spec": spec}


def overrides(options: Options) -> dict[str, Any]:
    """What the flags change in a document from a file: parts of the canonical spelling, to be merged over it."""
    found: dict[str, Any] = {}
    spec = job_part(options)
    role = _role_part(options)
    if role:
        spec["roles"] = {options.text("role", "worker"): role}
    if options.on("snapshot") or options.on("in-place"):
        spec["code"] = {"in_place": options.on("in-place")}
    if spec:
        found["spec"] = spec
    if options.text("name"):
        found["metadata"] = {"name": options.text("name")}
    return found


def job_part(options: Options) -> dict[str, Any]:
    """What flags say about the job as a whole."""
    if options.on("snapshot") and options.on("in-place"):
        raise UsageError("--snapshot and --in-place say opposite things", fix="keep one of them")
    spec: dict[str, Any] = {}
    for key, field in (("framework", "framework"), ("timeout", "timeout")):
        if options.text(key):
            spec[field] = options.text(key)
    for key, fields in (("retries", ("restart", "max")), ("stop-at-step", ("stop", "at_step"))):
        if options.number(key) is not None:
            spec.setdefault(fields[0], {})[fields[1]] = options.number(key)
    if options.text("stop-when"):
        spec.setdefault("stop", {})["when"] = options.text("stop-when")
    if options.text("priority"):
        spec["priority"] = _whole(options, "priority")
    environment = {key: options.text(key) for key in ("python", "requirements") if options.text(key)}
    parts = {"environment": environment, "env": _variables(options), "data": options.pairs("data"), "outputs": _outputs(options)}
    spec.update({name: value for name, value in parts.items() if value})
    if options.many("secret"):
        spec["secrets"] = options.many("secret")
    return spec


def _role_part(options: Options) -> dict[str, Any]:
    role: dict[str, Any] = {}
    workers = options.number("workers")
    if workers is not None:
        if workers < 1:
            raise UsageError("--workers 0: at least one is needed", fix="write --workers 1, or leave it out")
        role["replicas"] = {"min": workers, "max": workers}
    if options.number("processes") is not None:
        role["processes"] = options.number("processes")
    resources: dict[str, Any] = {name: options.text(key) for key, name in (("cpus", "cpu"), ("memory", "memory")) if options.text(key)}
    gpus = options.text("gpus")
    if gpus:
        kind, mark, count = gpus.rpartition(":")
        resources["gpu"] = count
        if mark:
            resources["gpu_type"] = [kind]
    if resources:
        role["resources"] = resources
    return role


def _variables(options: Options) -> dict[str, str]:
    found = {}
    for text in options.many("env"):
        name, mark, value = text.partition("=")
        if not mark:
            if name not in os.environ:
                raise UsageError(f"--env {name}: you have no variable of that name", fix=f"write --env {name}=VALUE")
            value = os.environ[name]
        found[name] = value
    return found


def _outputs(options: Options) -> dict[str, str]:
    for text in options.many("output"):
        if text in FORMATS:
            raise UsageError(f"--output {text}: here --output is what the run leaves behind", fix=f"write -o {text} for the format")
    return options.pairs("output")


def _whole(options: Options, key: str) -> int:
    text = options.text(key)
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"--{key} {text}: a whole number is needed") from None


def suggest_name(command: list[str]) -> str:
    """A name for a command: that of the script it runs, `train` for `python -u src/train.py --fast`."""
    from fairway.units import names

    words = [word for word in command if not word.startswith("-")]
    scripts = [word for word in words if word.endswith((".py", ".sh"))]
    module = command[command.index("-m") + 1] if "-m" in command[:-1] else ""
    chosen = scripts[0] if scripts else module or (words[0] if words else "job")
    return names.suggest_name(os.path.basename(chosen).removesuffix(".py").removesuffix(".sh"))


def origin(folder: str, *, terminal: bool = False) -> dict[str, Any]:
    """Who asks, from where, and with which interpreter."""
    return {"user": _user(), "folder": folder, "interpreter": find_python(), "terminal": terminal}


def find_python() -> str:
    """The interpreter that `python` means to the caller; ours when there is none."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, "python")
        if folder and os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.abspath(path)
    return sys.executable


def _user() -> str:
    given = os.environ.get("USER") or os.environ.get("LOGNAME")
    if given:
        return given
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return str(os.getuid())


def read_documents(path: str) -> tuple[str, str]:
    """The text of a document file and the folder that its relative paths start from; `-` is standard input."""
    if path == "-":
        return sys.stdin.read(), os.getcwd()
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(), os.path.dirname(os.path.abspath(path))
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}", fix="to run a command, put `--` before it: fairway run -- python train.py") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder", fix=f"name a file in it, or `fairway apply -f {path}`") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no text file", fix="name a YAML or JSON document") from None
