"""The entry point: renders a task from the document and the gang."""

from __future__ import annotations

from collections.abc import Mapping

from fairway.launch import auto, command, jax, mpi, mxnet, pytorch, tensorflow
from fairway.launch.contract_variable import contract_variables, default_variables, python_path
from fairway.launch.macro_value import macro_values
from fairway.launch.rank_position import LaunchAdapter, RankPosition
from fairway.launch.topology import GangMember, GangTopology, LaunchProcess, TaskFolders, TaskLaunch
from fairway.runtime import task_contract
from fairway.spec.job import JobSpec, TrainingFramework
from fairway.spec.macro import expand

SCRIPT = "script.sh"

ADAPTERS: Mapping[TrainingFramework, LaunchAdapter] = {
    TrainingFramework.AUTO: auto.ADAPTER,
    TrainingFramework.PYTORCH: pytorch.ADAPTER,
    TrainingFramework.TENSORFLOW: tensorflow.ADAPTER,
    TrainingFramework.JAX: jax.ADAPTER,
    TrainingFramework.MPI: mpi.ADAPTER,
    TrainingFramework.MXNET: mxnet.ADAPTER,
    TrainingFramework.COMMAND: command.ADAPTER,
}


def render(job_name: str, spec: JobSpec, topology: GangTopology, member: GangMember, folders: TaskFolders) -> TaskLaunch:
    """Return the processes of a member of the gang and the files that they need.

    Variables by increasing precedence: defaults, the framework's, the document's, the role's, the task contract's.
    """
    seat = RankPosition(job_name, spec, topology, member, folders)
    adapter = ADAPTERS[seat.framework]
    script = {SCRIPT: seat.role.script} if seat.role.script else {}
    seats = [RankPosition(job_name, spec, topology, member, folders, local) for local in range(adapter.processes(seat))]
    return TaskLaunch(tuple(_process(adapter, item) for item in seats), script | adapter.files(seat))


def _process(adapter: LaunchAdapter, seat: RankPosition) -> LaunchProcess:
    values = macro_values(seat)
    own = {name: expand(text, values) for name, text in (seat.spec.env | seat.role.env).items()}
    defaults = default_variables(seat) | adapter.defaults(seat)
    if task_contract.UNBUFFERED in own:
        del defaults[task_contract.LINES]
    env = defaults | adapter.variables(seat) | own | contract_variables(seat) | python_path(seat, own.get("PYTHONPATH", ""))
    gives_way = frozenset(defaults) - frozenset(own)
    return LaunchProcess(adapter.command(seat, _argv(seat, values)), env, seat.local_rank, gives_way)


def _argv(seat: RankPosition, values: Mapping[str, str]) -> tuple[str, ...]:
    if seat.role.script:
        # A script is in bash's own language: it reads variables, and macros are not expanded in it.
        return ("bash", "-eu", f"{seat.folders.attempt}/{SCRIPT}")
    return tuple(expand(word, values) for word in seat.role.command)
