"""The variables of the task contract, set for every process whatever its framework; see `fairway.runtime.task_contract`."""

from __future__ import annotations

import json

from fairway.launch.rank_position import RankPosition
from fairway.runtime import task_contract
from fairway.spec.job import TrainingFramework
from fairway.units import quantity


def contract_variables(seat: RankPosition) -> dict[str, str]:
    """Return the `FAIRWAY_*` variables of a process. They are reserved: a document cannot set them."""
    member, topology, folders = seat.member, seat.topology, seat.folders
    variables = {
        task_contract.JOB: seat.job,
        task_contract.NAMESPACE: topology.namespace,
        task_contract.TASK: member.name,
        task_contract.ROLE: member.role,
        task_contract.INDEX: str(member.index),
        task_contract.ATTEMPT: str(member.attempt),
        task_contract.LOCAL_RANK: str(seat.local_rank),
        task_contract.LOCAL_WORLD_SIZE: str(seat.local_world_size),
        task_contract.WORLD_SIZE: str(seat.world_size),
        task_contract.FIRST_ON_NODE: str(int(seat.first_on_node)),
        task_contract.PEERS: json.dumps(peers(seat), separators=(",", ":")),
        task_contract.CHECKPOINT_DIR: folders.checkpoints,
        task_contract.CHECKPOINT_EVERY: quantity.show_number(quantity.seconds(seat.spec.checkpoint.every)),
        task_contract.CHECKPOINT_KEEP: str(seat.spec.checkpoint.keep),
        task_contract.TENSORBOARD_DIR: folders.tensorboard,
        task_contract.ATTEMPT_DIR: folders.attempt,
        task_contract.SHARED_DIR: folders.shared,
    }
    if seat.rank is not None:
        variables[task_contract.RANK] = str(seat.rank)
    variables |= {task_contract.OUTPUT_PREFIX + as_variable(name): path for name, path in folders.outputs.items()}
    variables |= {task_contract.DATA_PREFIX + as_variable(name): path for name, path in folders.data.items()}
    return variables


def peers(seat: RankPosition) -> dict[str, list[str]]:
    """Return the addresses of all tasks by role, in order of index."""
    topology = seat.topology
    return {role: [member.address for member in topology.role(role)] for role in topology.roles}


def python_path(seat: RankPosition, given: str) -> dict[str, str]:
    """Return PYTHONPATH, with `fairway.runtime` before the document's value.

    The engine appends the value of the task's environment.
    """
    joined = ":".join(part for part in (seat.folders.runtime, given) if part)
    return {"PYTHONPATH": joined} if joined else {}


def default_variables(seat: RankPosition) -> dict[str, str]:
    """Return good defaults for any process."""
    threads = thread_count(seat)
    output = {task_contract.UNBUFFERED: "1", task_contract.LINES: "1", "PYTHONFAULTHANDLER": "1"}
    return output | error_file(seat) | ({"OMP_NUM_THREADS": str(threads)} if threads else {})


def error_file(seat: RankPosition) -> dict[str, str]:
    """Return the path where torchrun records the error of the rank that failed first, for frameworks that may use it."""
    if seat.spec.framework not in (TrainingFramework.AUTO, TrainingFramework.PYTORCH):
        return {}
    return {"TORCHELASTIC_ERROR_FILE": f"{seat.folders.attempt}/error-{seat.local_rank}.json"}


def thread_count(seat: RankPosition) -> int | None:
    """Return how many threads a process should use: its share of the requested cores; None leaves it to the program.

    Where no cores are requested, ranks that share a machine get one thread each, as with `torchrun`; a single process may use the
    whole machine, as it would without us.
    """
    requested = seat.role.resources.cpu
    if requested is not None:
        return max(1, int(quantity.number(requested) / seat.local_world_size))
    return 1 if seat.world_size > 1 and seat.rank is not None else None


def as_variable(name: str) -> str:
    """`my-data` -> `MY_DATA`."""
    return "".join(letter if letter.isalnum() else "_" for letter in name).upper()
