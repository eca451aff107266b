"""The entry point: renders a task from the document and the gang."""

from __future__ import annotations

from collections.abc import Mapping

from fairway.launch import auto, command, jax, mpi, mxnet, pytorch, tensorflow
from fairway.launch.contract_env import contract_variables, default_variables, python_path
from fairway.launch.macro_values import macro_values
from fairway.launch.seat import Adapter, Seat
from fairway.launch.topology import Folders, Launch, Member, Process, Topology
from fairway.runtime import contract
from fairway.spec.job import Framework, JobSpec
from fairway.spec.macros import expand

SCRIPT = "script.sh"

ADAPTERS: Mapping[Framework, Adapter] = {
    Framework.AUTO: auto.ADAPTER,
    Framework.PYTORCH: pytorch.ADAPTER,
    Framework.TENSORFLOW: tensorflow.ADAPTER,
    Framework.JAX: jax.ADAPTER,
    Framework.MPI: mpi.ADAPTER,
    Framework.MXNET: mxnet.ADAPTER,
    Framework.COMMAND: command.ADAPTER,
}


def render(job_name: str, spec: JobSpec, topology: Topology, member: Member, folders: Folders) -> Launch:
    """Return the processes of a member of the gang and the files that they need.

    Variables by increasing precedence: defaults, the framework's, the document's, the role's, the task contract's.
    """
    seat = Seat(job_name, spec, topology, member, folders)
    adapter = ADAPTERS[seat.framework]
    script = {SCRIPT: seat.role.script} if seat.role.script else {}
    seats = [Seat(job_name, spec, topology, member, folders, local) for local in range(adapter.processes(seat))]
    return Launch(tuple(_process(adapter, item) for item in seats), script | adapter.files(seat))


def _process(adapter: Adapter, seat: Seat) -> Process:
    values = macro_values(seat)
    own = {name: expand(text, values) for name, text in (seat.spec.env | seat.role.env).items()}
    defaults = default_variables(seat) | adapter.defaults(seat)
    if contract.UNBUFFERED in own:
        del defaults[contract.LINES]
    env = defaults | adapter.variables(seat) | own | contract_variables(seat) | python_path(seat, own.get("PYTHONPATH", ""))
    gives_way = frozenset(defaults) - frozenset(own)
    return Process(adapter.command(seat, _argv(seat, values)), env, seat.local_rank, gives_way)


def _argv(seat: Seat, values: Mapping[str, str]) -> tuple[str, ...]:
    if seat.role.script:
        # A script is in bash's own language: it reads variables, and macros are not expanded in it.
        return ("bash", "-eu", f"{seat.folders.attempt}/{SCRIPT}")
    return tuple(expand(word, values) for word in seat.role.command)
