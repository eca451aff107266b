"""Who this process is and who else is there, from the variables that the engine set.

Everything has a sensible value outside of a job: rank 0 of 1, attempt 0, no peers. Values are read when
asked, so a program that changes its own environment (or a test) sees the change.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from fairway.runtime import contract

NO_RANK = -1
"""The rank of a process whose role does not compute: a parameter server, an evaluator."""

_LAUNCHERS = (
    # A launcher inside the task (torchrun, mpirun) starts ranks of its own: they know better than the task's variables.
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
_OURS = ("", contract.RANK, contract.WORLD_SIZE, contract.LOCAL_RANK, contract.LOCAL_WORLD_SIZE)


def in_job() -> bool:
    """Whether this process was started by Fairway."""
    return bool(os.environ.get(contract.JOB))


def job() -> str:
    """The run's name, for example `mnist-7`; empty outside of a job."""
    return os.environ.get(contract.JOB, "")


def role() -> str:
    """`worker`, `ps`, `chief` ...; `worker` outside of a job."""
    return os.environ.get(contract.ROLE) or "worker"


def index() -> int:
    """This task among those of its role, from 0."""
    return _number(contract.INDEX, 0)


def attempt() -> int:
    """How often this task was started before."""
    return _number(contract.ATTEMPT, 0)


def rank() -> int:
    """This process among all that compute together; -1 where the role has no rank (ps, evaluator)."""
    return _placed(1, NO_RANK if in_job() else 0)


def world_size() -> int:
    """How many processes compute together."""
    return _placed(2, 1)


def local_rank() -> int:
    """This process among those of its task, from 0: which of the task's GPUs is its own.

    The variable `LOCAL_RANK` may differ: it counts over all tasks of the run on this node where no GPU depends on it.
    """
    return _placed(3, 0)


def local_world_size() -> int:
    """How many processes the task has."""
    return _placed(4, 1)


def local_leader() -> bool:
    """Whether this process is the one of its node that does what is done once there, such as a download.

    True in exactly one process of the run on each node, at each attempt, under every launcher; on Kubernetes a pod is a node,
    since pods share no folder. The others must wait for it: a barrier, or a file that appears when it is done. True
    outside of a job.
    """
    first = os.environ.get(contract.FIRST_ON_NODE, "1") != "0"
    # A program that starts ranks by itself (Lightning) tells them by this variable alone.
    return first and local_rank() == 0 and _number("LOCAL_RANK", 0) == 0


def peers() -> dict[str, list[str]]:
    """Addresses of all tasks by role, in order of index: `{"worker": ["127.0.0.1:20001", ...]}`; empty outside of a job."""
    text = os.environ.get(contract.PEERS)
    if not text:
        return {}
    try:
        found = json.loads(text)
        return {str(name): [str(address) for address in addresses] for name, addresses in found.items()}
    except (ValueError, AttributeError, TypeError) as error:
        message = f"{contract.PEERS}={text!r} is not JSON of role -> addresses; was it changed inside the task?"
        raise ValueError(message) from error


def data(name: str) -> str:
    """The path or URI of an input: `data: {train: ...}` in the document makes `data("train")`."""
    variable = contract.DATA_PREFIX + _variable(name)
    found = os.environ.get(variable)
    if found is None:
        known = sorted(key for key in os.environ if key.startswith(contract.DATA_PREFIX))
        message = f"no input is called {name!r} ({variable} is not set; set are: {', '.join(known) or 'none'})"
        raise KeyError(message)
    return found


def output(name: str) -> Path:
    """The folder of an output, made if need be: `outputs: {model: ...}` makes `output("model")`.

    Where the document names no such output, and outside of a job, it is `outputs/NAME` in the current folder.
    """
    folder = Path(os.environ.get(contract.OUTPUT_PREFIX + _variable(name)) or Path("outputs") / name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def tensorboard_dir() -> Path:
    """Where event files go so that `fairway tensorboard` and the charts find them; `runs` outside of a job."""
    return Path(os.environ.get(contract.TENSORBOARD_DIR) or "runs")


def attempt_dir() -> Path | None:
    """This attempt's folder; None outside of a job."""
    return _folder(contract.ATTEMPT_DIR)


def shared_dir() -> Path | None:
    """The folder that all tasks and attempts of the run share; None outside of a job."""
    return _folder(contract.SHARED_DIR)


def attempt_token() -> str:
    """Tells one start of the whole gang from another, also where a launcher in the task restarts by itself."""
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
    """Whether the engine itself set the variables of this launcher, for programs that look for them."""
    if sign == "TORCHELASTIC_RUN_ID":
        return in_job() and os.environ[sign] == job()
    from_jax = os.environ.get(contract.JAX_SIGN, "").startswith(contract.NO_LAUNCHER)
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
