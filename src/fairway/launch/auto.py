"""The default adapter: the variables of PyTorch, TensorFlow, JAX, MXNet and XGBoost together, whichever the program uses.

They do not conflict, and a single worker gets the same as several. There is one exception. A program that starts ranks by itself
(Lightning with several devices, or any program with several GPUs and one process) takes `LOCAL_RANK` as the sign that its ranks
were started for it, and would wait for them. It only gets what PyTorch's `init_process_group` needs.
"""

from __future__ import annotations

from fairway.launch import jax, mpi, mxnet, pytorch, tensorflow
from fairway.launch.rank_position import LaunchAdapter, RankPosition
from fairway.units.launcher import Launcher


def variables(seat: RankPosition) -> dict[str, str]:
    """Return the variables of all frameworks; those of MPI when the command calls `mpirun`."""
    if seat.starter is Launcher.MPI:
        return mpi.variables(seat)
    if seat.first and not seat.starter and seat.alone and seat.starts_own_ranks:
        return pytorch.meeting_point(seat.first) | {"RANK": "0", "WORLD_SIZE": "1"}
    several = any(member.processes > 1 for member in seat.topology.members)
    # TensorFlow requires one process per task: with several, no single address could be given to it.
    of_tensorflow = {} if several else tensorflow.variables(seat)
    return of_tensorflow | mxnet.variables(seat) | jax.variables(seat) | pytorch.variables(seat)


def defaults(seat: RankPosition) -> dict[str, str]:
    """Return the defaults of TensorFlow and PyTorch, or those of MPI."""
    if seat.starter is Launcher.MPI:
        return mpi.defaults(seat)
    return tensorflow.defaults(seat) | pytorch.defaults(seat)


def processes(seat: RankPosition) -> int:
    """Return the number of processes to start: as for PyTorch; MPI starts its own ranks."""
    return 1 if seat.starter is Launcher.MPI else pytorch.processes(seat)


def files(seat: RankPosition) -> dict[str, str]:
    """Return the hostfile of MPI."""
    return mpi.files(seat) if seat.starter is Launcher.MPI else {}


ADAPTER = LaunchAdapter(variables=variables, defaults=defaults, command=pytorch.command, processes=processes, files=files)
