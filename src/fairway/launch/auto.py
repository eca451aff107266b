"""The default: what PyTorch, TensorFlow, JAX, MXNet and XGBoost read, together, so that a program finds its own.

They do not disturb each other, and one worker gets the same as many. There is one exception: a program that starts ranks
by itself (Lightning with several devices, or any program that was given several GPUs and one process) takes `LOCAL_RANK`
as the sign that its ranks were started for it, and would wait for them. It gets only what PyTorch's
`init_process_group` needs.
"""

from __future__ import annotations

from fairway.launch import jax, mpi, mxnet, pytorch, tensorflow
from fairway.launch.seat import Adapter, Seat
from fairway.units.programs import Starter


def variables(seat: Seat) -> dict[str, str]:
    """The variables of all of them; those of MPI when the command calls `mpirun`."""
    if seat.starter is Starter.MPI:
        return mpi.variables(seat)
    if seat.first and not seat.starter and seat.alone and seat.starts_own_ranks:
        return pytorch.meeting_point(seat.first) | {"RANK": "0", "WORLD_SIZE": "1"}
    several = any(member.processes > 1 for member in seat.topology.members)
    # TensorFlow wants one process a task: with several there is no one address that it could be told.
    of_tensorflow = {} if several else tensorflow.variables(seat)
    return of_tensorflow | mxnet.variables(seat) | jax.variables(seat) | pytorch.variables(seat)


def defaults(seat: Seat) -> dict[str, str]:
    """The defaults of all three."""
    if seat.starter is Starter.MPI:
        return mpi.defaults(seat)
    return tensorflow.defaults(seat) | pytorch.defaults(seat)


def processes(seat: Seat) -> int:
    """As PyTorch has it; MPI starts its own."""
    return 1 if seat.starter is Starter.MPI else pytorch.processes(seat)


def files(seat: Seat) -> dict[str, str]:
    """The hostfile of MPI."""
    return mpi.files(seat) if seat.starter is Starter.MPI else {}


ADAPTER = Adapter(variables=variables, defaults=defaults, command=pytorch.command, processes=processes, files=files)
