"""The variables of the task contract, set for every process whatever its framework; see `fairway.runtime.contract`."""

from __future__ import annotations

import json

from fairway.launch.seat import Seat
from fairway.runtime import contract
from fairway.spec.job import Framework
from fairway.units import quantity


def contract_variables(seat: Seat) -> dict[str, str]:
    """Return the `FAIRWAY_*` variables of a process. They are reserved: a document cannot set them."""
    member, topology, folders = seat.member, seat.topology, seat.folders
    variables = {
        contract.JOB: seat.job,
        contract.NAMESPACE: topology.namespace,
        contract.TASK: member.name,
        contract.ROLE: member.role,
        contract.INDEX: str(member.index),
        contract.ATTEMPT: str(member.attempt),
        contract.LOCAL_RANK: str(seat.local_rank),
        contract.LOCAL_WORLD_SIZE: str(seat.local_world_size),
        contract.WORLD_SIZE: str(seat.world_size),
        contract.FIRST_ON_NODE: str(int(seat.first_on_node)),
        contract.PEERS: json.dumps(peers(seat), separators=(",", ":")),
        contract.CHECKPOINT_DIR: folders.checkpoints,
        contract.CHECKPOINT_EVERY: quantity.show_number(quantity.seconds(seat.spec.checkpoint.every)),
        contract.CHECKPOINT_KEEP: str(seat.spec.checkpoint.keep),
        contract.TENSORBOARD_DIR: folders.tensorboard,
        contract.ATTEMPT_DIR: folders.attempt,
        contract.SHARED_DIR: folders.shared,
    }
    if seat.rank is not None:
        variables[contract.RANK] = str(seat.rank)
    variables |= {contract.OUTPUT_PREFIX + as_variable(name): path for name, path in folders.outputs.items()}
    variables |= {contract.DATA_PREFIX + as_variable(name): path for name, path in folders.data.items()}
    return variables


def peers(seat: Seat) -> dict[str, list[str]]:
    """Return the addresses of all tasks by role, in order of index."""
    topology = seat.topology
    return {role: [member.address for member in topology.role(role)] for role in topology.roles}


def python_path(seat: Seat, given: str) -> dict[str, str]:
    """Return PYTHONPATH, with `fairway.runtime` before the document's value.

    The engine appends the value of the task's environment.
    """
    joined = ":".join(part for part in (seat.folders.runtime, given) if part)
    return {"PYTHONPATH": joined} if joined else {}


def default_variables(seat: Seat) -> dict[str, str]:
    """Return good defaults for any process."""
    threads = thread_count(seat)
    output = {contract.UNBUFFERED: "1", contract.LINES: "1", "PYTHONFAULTHANDLER": "1"}
    return output | error_file(seat) | ({"OMP_NUM_THREADS": str(threads)} if threads else {})


def error_file(seat: Seat) -> dict[str, str]:
    """Return the path where torchrun records the error of the rank that failed first, for frameworks that may use it."""
    if seat.spec.framework not in (Framework.AUTO, Framework.PYTORCH):
        return {}
    return {"TORCHELASTIC_ERROR_FILE": f"{seat.folders.attempt}/error-{seat.local_rank}.json"}


def thread_count(seat: Seat) -> int | None:
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
