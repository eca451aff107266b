"""What can never run here is refused when it is asked for, with the reason."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.plan import gang
from fairway.plan.scheduling import fit
from fairway.state.job import Hold, Job
from fairway.state.node import Node


def never_fits(job: Job, nodes: Sequence[Node]) -> str:
    """Why the run could not start even on idle nodes; empty when it could."""
    for name, role in job.spec.roles.items():
        asked = gang.need_of(role, 1.0).gpu
        if asked and asked != int(asked):
            return f"roles.{name}.resources.gpu is {asked:g}: this engine hands out whole GPUs; ask for 1"
    capacity = max((node.cpu for node in nodes), default=0.0)
    tasks = gang.make_tasks(job, gang.smallest_sizes(job.spec), capacity, job.created)
    placements = {name: role.placement for name, role in job.spec.roles.items()}
    idle = [fit.Room.empty(node) for node in nodes]
    found = fit.place(tasks, idle, placements)
    return found.message.replace("are free", "is all there is") if isinstance(found, Hold) else ""
