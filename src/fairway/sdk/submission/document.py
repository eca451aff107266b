"""Documents in the Kubernetes spelling made from wishes, and the origin of a request: user, folder, interpreter.

The command line uses this module too, so it imports as little as `wire`.
"""

from __future__ import annotations

import os
import sys

from fairway.errors import UsageError
from fairway.sdk.submission.process_condition import read_conditions
from fairway.units.environment_variable import machine_variables
from fairway.units.tree import lay_over as lay_over

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from fairway.sdk.run_option import RunOptions


def make_document(command: Sequence[str], wishes: RunOptions, *, namespace: str, in_place: bool) -> dict[str, Any]:
    """Return the document for a command."""
    role: dict[str, Any] = {"command": list(command), **_role_part(wishes)}
    metadata: dict[str, Any] = {"name": wishes.get("name") or suggest_name(command), "namespace": namespace}
    if wishes.get("labels"):
        metadata["labels"] = wishes["labels"]
    spec: dict[str, Any] = {
        "code": {"path": ".", "inPlace": in_place},
        # A command typed by hand should fail visibly, not be restarted unnoticed.
        "restart": {"max": 0},
        "roles": _roles(command, wishes, role),
        **_job_part(wishes),
    }
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": "TrainingJob", "metadata": metadata, "spec": spec}


def _roles(command: Sequence[str], wishes: RunOptions, role: dict[str, Any]) -> dict[str, Any]:
    """Return the roles, which all run the command; resources go to the role that the wishes name."""
    subject = wishes.get("role") or "worker"
    counts = wishes.get("roles") or {}
    others = {name: {"command": list(command), **_count(name, count)} for name, count in counts.items() if name != subject}
    if subject in counts and wishes.get("workers") is not None and counts[subject] != wishes["workers"]:
        message = f"{subject} has {counts[subject]} tasks according to its role, but {wishes['workers']} according to workers"
        raise UsageError(message, fix="keep one of them")
    return {**others, subject: {**role, **(_count(subject, counts[subject]) if subject in counts else {})}}


def _count(name: str, count: int) -> dict[str, Any]:
    if count < 1:
        message = f"roles: {name}: {count}: at least one is needed"
        raise UsageError(message, fix="leave it out, or write 1")
    return {"replicas": {"min": count, "max": count}}


def change_document(document: dict[str, Any], wishes: RunOptions, command: Sequence[str] = ()) -> dict[str, Any]:
    """Return a document with the wishes merged into it, and with `command` instead of its own.

    Wishes that name no role apply to the only role.
    """
    spec = _job_part(wishes)
    role = _role_part(wishes)
    if command:
        role |= {"command": list(command), "script": ""}
    if role:
        roles = list(document["spec"]["roles"])
        subject = wishes.get("role") or (roles[0] if len(roles) == 1 else "worker")
        if subject not in roles:
            message = f"the document has no role {subject}"
            raise UsageError(message, fix=f"choose one of its roles: {' or '.join(roles)}")
        spec["roles"] = {subject: role}
    for name, count in (wishes.get("roles") or {}).items():
        if name not in document["spec"]["roles"]:
            message = f"the document has no role {name}"
            raise UsageError(message, fix=f"its roles are {' and '.join(document['spec']['roles'])}")
        spec.setdefault("roles", {})[name] = {**spec.get("roles", {}).get(name, {}), **_count(name, count)}
    metadata = {key: wishes[key] for key in ("name", "labels") if wishes.get(key)}
    return lay_over(document, {"spec": spec, "metadata": metadata})


def _job_part(wishes: RunOptions) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    for key in ("framework", "timeout", "env", "data", "secrets", "outputs", "queue"):
        value = wishes.get(key)
        if value:
            spec[key] = value
    if wishes.get("priority") is not None:
        spec["priority"] = wishes["priority"]
    if wishes.get("retries") is not None:
        spec["restart"] = {"max": wishes["retries"]}
    if wishes.get("log_limit"):
        spec["keep"] = {"logSize": str(wishes["log_limit"])}
    stop = {"atStep": wishes.get("stop_at_step"), "when": wishes.get("stop_when")}
    environment = {"python": wishes.get("python"), "requirements": wishes.get("requirements")}
    metrics, tensorboard = {"pattern": wishes.get("metrics_pattern")}, {"dir": wishes.get("tensorboard_dir")}
    parts: dict[str, dict[str, Any]] = {"stop": stop, "environment": environment, "metrics": metrics, "tensorboard": tensorboard}
    for name, part in parts.items():
        fields = {key: value for key, value in part.items() if value}
        if fields:
            spec[name] = fields
    return spec


def _role_part(wishes: RunOptions) -> dict[str, Any]:
    role: dict[str, Any] = {}
    workers = wishes.get("workers")
    if workers is not None:
        if workers < 1:
            message = f"workers: {workers}: at least one is needed"
            raise UsageError(message, fix="leave it out, or write 1")
        role["replicas"] = {"min": workers, "max": workers}
    if wishes.get("processes") is not None:
        role["processes"] = wishes["processes"]
    resources: dict[str, Any] = {}
    for key, name in (("cpus", "cpu"), ("memory", "memory")):
        if wishes.get(key):
            resources[name] = str(wishes[key])  # type: ignore[literal-required]
    if wishes.get("gpus") not in (None, ""):
        kind, mark, count = split_gpus(str(wishes["gpus"]))
        resources["gpu"] = count
        if mark:
            resources["gpuType"] = [kind]
    if resources:
        role["resources"] = resources
    if wishes.get("memory_limit"):
        role["limits"] = {"memory": str(wishes["memory_limit"])}
    return role


def split_gpus(text: str, called: str = "gpus") -> tuple[str, str, str]:
    """Split `H100:8` into GPU type, colon and number. `called` is the name of the option in error messages."""
    kind, mark, count = text.rpartition(":")
    if not mark and count[:1].isalpha():
        message = f"{called} {text}: the number of GPUs is missing"
        raise UsageError(message, fix=f"write {text}:1")
    return kind, mark, count


def suggest_name(command: Sequence[str]) -> str:
    """Return a name for a command, from the script that it runs: `train` for `python -u src/train.py --fast`."""
    from fairway.units import names

    words = [word for word in command if not word.startswith("-")]
    scripts = [word for word in words if word.endswith((".py", ".sh"))]
    module = command[list(command).index("-m") + 1] if "-m" in command[:-1] else ""
    program = scripts[0] if scripts else module or (words[0] if words else "job")
    return names.suggest_name(os.path.basename(program).removesuffix(".py").removesuffix(".sh"))


def make_origin(folder: str, *, interpreter: str, terminal: bool = False, stdin: str = "") -> dict[str, Any]:
    """Return the origin of a request: user, folder and interpreter."""
    return {"user": _user(), "folder": folder, "interpreter": interpreter, "terminal": terminal, "stdin": stdin}


def make_run_origin(folder: str, *, interpreter: str, terminal: bool = False, stdin: str = "") -> dict[str, Any]:
    """Return the origin of a run on this machine, with the conditions under which the caller's own processes run."""
    origin = make_origin(folder, interpreter=interpreter, terminal=terminal, stdin=stdin)
    return {**origin, "conditions": read_conditions() or None}


def find_python() -> str:
    """Return the first `python` on the PATH; this process's interpreter if there is none."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, "python")
        if folder and os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.abspath(path)
    return sys.executable


def read_environment(*, in_place: bool = True) -> dict[str, str]:
    """Return the environment without variables that are not UTF-8; unless `in_place`, only the machine's variables."""
    variables = {}
    for name, value in os.environ.items():
        try:
            (name + value).encode("utf-8")
        except UnicodeEncodeError:
            continue
        variables[name] = value
    return variables if in_place else machine_variables(variables)


def read_documents(path: str) -> tuple[str, str]:
    """Return the text of a document file and the folder that its relative paths start from; `-` is standard input."""
    if path == "-":
        return _with_text("standard input", sys.stdin.read()), os.getcwd()
    try:
        with open(path, encoding="utf-8") as file:
            return _with_text(path, file.read()), os.path.dirname(os.path.abspath(path))
    except FileNotFoundError:
        message = f"there is no file {path}"
        raise UsageError(message, fix="to run a command, put `--` before it: fairway run -- python train.py") from None
    except IsADirectoryError:
        message = f"{path} is a folder"
        raise UsageError(message, fix=f"name a file in it, or `fairway apply -f {path}`") from None
    except UnicodeDecodeError:
        message = f"{path} is not a text file"
        raise UsageError(message, fix="name a YAML or JSON document") from None


def _with_text(path: str, text: str) -> str:
    if not text.strip():
        message = f"{path} is empty"
        raise UsageError(message, fix="write a document that begins with `kind: TrainingJob`; `fairway init` writes one")
    return text


def is_in_place(text: str) -> bool:
    """Whether a document might run in place, and so need the caller's environment; the daemon decides."""
    return "in_place" in text or "inPlace" in text


def _user() -> str:
    user = os.environ.get("USER") or os.environ.get("LOGNAME")
    if user:
        return user
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return str(os.getuid())
