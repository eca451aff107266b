"""Identity of this process and its peers, from the environment variables that the engine sets.

Every function returns a sensible value outside of a job: rank 0 of 1, attempt 0, no peers. Variables are read on each call, so a
program that changes its own environment (or a test) sees the change.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from fairway.runtime import task_contract

NO_RANK = -1
"""The rank of a process whose role does not take part in the computation: a parameter server, an evaluator."""

_LAUNCHERS = (
    # A launcher inside the task (torchrun, mpirun) starts its own ranks; its variables take precedence over the task's.
    ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMI_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
_OURS = ("", task_contract.RANK, task_contract.WORLD_SIZE, task_contract.LOCAL_RANK, task_contract.LOCAL_WORLD_SIZE)


def in_job() -> bool:
    """Return whether this process was started by Fairway."""
    return bool(os.environ.get(task_contract.JOB))


def job() -> str:
    """Return the name of the run, for example `mnist-7`; empty outside of a job."""
    return os.environ.get(task_contract.JOB, "")


def role() -> str:
    """Return the role: `worker`, `ps`, `chief` ...; `worker` outside of a job."""
    return os.environ.get(task_contract.ROLE) or "worker"


def index() -> int:
    """Return the index of this task among those of its role, from 0."""
    return _number(task_contract.INDEX, 0)


def attempt() -> int:
    """Return how many times this task was started before."""
    return _number(task_contract.ATTEMPT, 0)


def rank() -> int:
    """Return the rank of this process among all that compute together; -1 if the role has no rank (ps, evaluator)."""
    return _placed(1, NO_RANK if in_job() else 0)


def world_size() -> int:
    """Return the number of processes that compute together."""
    return _placed(2, 1)


def local_rank() -> int:
    """Return the rank of this process within its task, from 0: the index of its GPU among those of the task.

    The variable `LOCAL_RANK` may differ: it counts over all tasks of the run on this node if no GPU depends on it.
    """
    return _placed(3, 0)


def local_world_size() -> int:
    """Return the number of processes of the task."""
    return _placed(4, 1)


def local_leader() -> bool:
    """Return whether this process should do the work that is needed once per node, such as a download.

    It returns True in exactly one process of the run on each node, at each attempt, under every launcher. On Kubernetes a pod
    counts as a node, since pods share no folder. The other processes must wait, with a barrier or for a file that appears when
    the work is done. Outside of a job it returns True.
    """
    first = os.environ.get(task_contract.FIRST_ON_NODE, "1") != "0"
    # A program that starts ranks by itself (Lightning) sets only this variable for them.
    return first and local_rank() == 0 and _number("LOCAL_RANK", 0) == 0


def peers() -> dict[str, list[str]]:
    """Return the addresses of all tasks by role, in order of index: `{"worker": ["127.0.0.1:20001", ...]}`.

    The result is empty outside of a job.
    """
    text = os.environ.get(task_contract.PEERS)
    if not text:
        return {}
    try:
        by_role = json.loads(text)
        return {str(name): [str(address) for address in addresses] for name, addresses in by_role.items()}
    except (ValueError, AttributeError, TypeError) as error:
        message = f"{task_contract.PEERS}={text!r} is not JSON of role -> addresses; was it changed inside the task?"
        raise ValueError(message) from error


def data(name: str) -> str:
    """Return the path or URI of an input: `data: {train: ...}` in the document makes `data("train")`."""
    variable = task_contract.DATA_PREFIX + _variable(name)
    value = os.environ.get(variable)
    if value is None:
        available = sorted(key for key in os.environ if key.startswith(task_contract.DATA_PREFIX))
        message = f"no input is named {name!r} ({variable} is not set; available: {', '.join(available) or 'none'})"
        raise KeyError(message)
    return value


def output(name: str) -> Path:
    """Return the folder of an output, and create it if needed: `outputs: {model: ...}` makes `output("model")`.

    If the document has no such output, or outside of a job, it is `outputs/NAME` in the current folder.
    """
    folder = Path(os.environ.get(task_contract.OUTPUT_PREFIX + _variable(name)) or Path("outputs") / name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def tensorboard_dir() -> Path:
    """Return the folder for event files, where `fairway tensorboard` and the charts find them; `runs` outside of a job."""
    return Path(os.environ.get(task_contract.TENSORBOARD_DIR) or "runs")


def attempt_dir() -> Path | None:
    """Return the folder of this attempt; None outside of a job."""
    return _folder(task_contract.ATTEMPT_DIR)


def shared_dir() -> Path | None:
    """Return the folder that all tasks and attempts of the run share; None outside of a job."""
    return _folder(task_contract.SHARED_DIR)


def attempt_token() -> str:
    """Return a token that identifies one start of the whole gang, including restarts by a launcher inside the task."""
    return f"{attempt()}.{_number('TORCHELASTIC_RESTART_COUNT', 0)}"


def _folder(variable: str) -> Path | None:
    text = os.environ.get(variable)
    return Path(text) if text else None


def _placed(column: int, otherwise: int) -> int:
    for row in _LAUNCHERS:
        if row[0] in os.environ and not _is_ours(row[0]):
            return _number(row[column], 1 if column in (2, 4) else 0)
    return _number(_OURS[column], otherwise)


def _is_ours(sign: str) -> bool:
    """Return whether the engine itself set the variables of this launcher, for programs that look for them."""
    if sign == "TORCHELASTIC_RUN_ID":
        return in_job() and os.environ[sign] == job()
    from_jax = os.environ.get(task_contract.JAX_SIGN, "").startswith(task_contract.NO_LAUNCHER)
    return sign == "OMPI_COMM_WORLD_RANK" and from_jax and "PMIX_NAMESPACE" not in os.environ


def _number(variable: str, otherwise: int) -> int:
    text = os.environ.get(variable)
    if not text:
        return otherwise
    try:
        return int(text)
    except ValueError:
        message = f"{variable}={text!r} is not a whole number; was it changed inside the task?"
        raise ValueError(message) from None


def _variable(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name).upper()
