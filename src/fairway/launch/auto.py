"""The default: what PyTorch, TensorFlow and JAX read, together, so that a program finds its own.

They do not disturb each other. A document that asks for one process in all gets only what PyTorch's
`init_process_group` needs, so that programs which start ranks by themselves (Lightning with several devices)
do as they would without us.
"""

from __future__ import annotations

from fairway.launch import jax, mpi, pytorch, tensorflow
from fairway.launch.seat import Adapter, Seat
from fairway.units.programs import Starter


def variables(seat: Seat) -> dict[str, str]:
    """The variables of all three; those of MPI when the command calls `mpirun`."""
    if seat.starter is Starter.MPI:
        return mpi.variables(seat)
    if seat.alone and not seat.starter and seat.first:
        return pytorch.meeting_point(seat.first) | {"RANK": "0", "WORLD_SIZE": "1"}
    several = any(member.processes > 1 for member in seat.topology.members)
    # TensorFlow wants one process a task: with several there is no one address that it could be told.
    of_tensorflow = {} if several else tensorflow.variables(seat)
    return of_tensorflow | jax.variables(seat) | pytorch.variables(seat)


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
