"""Views of defragmentation: the runs that move, the waiting run that then starts, and the cost."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairway.units.notebook_card import NotebookView
from fairway.views.text import phrase
from fairway.views.text.table import Column, TextPage, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    # The SDK imports the views, and must not import the scheduler.
    from fairway.plan.scheduling.gang import TaskSeat
    from fairway.plan.scheduling.preemption.defragmentation import GangMove, MovePlan


class RunMoveView(msgspec.Struct, frozen=True):
    """The move of a run to other nodes or GPUs."""

    name: str
    namespace: str
    before: tuple[str, ...]
    """The nodes it leaves; with GPUs if it stays on the same nodes: `here/GPU-1a2b3c4d`."""
    after: tuple[str, ...]
    """The nodes or GPUs on which it continues."""
    gpus: float
    cost: float
    """GPU-seconds: work since the last checkpoint that is repeated, and the time to restart."""


class DefragmentationPlanView(NotebookView, frozen=True):
    """The fewest moves that let a waiting run start."""

    whom: str = ""
    """The run that starts after the moves; empty if no moves would help."""
    namespace: str = ""
    nodes: tuple[str, ...] = ()
    """The nodes on which it starts."""
    moves: tuple[RunMoveView, ...] = ()
    cost: float = 0.0
    """Total in GPU-seconds."""
    done: bool = False
    """Whether the moves were started; otherwise this is only a plan."""


def moves_plan_view(plan: MovePlan | None, *, done: bool) -> DefragmentationPlanView:
    """Return the view of a plan; an empty view if there is none."""
    if plan is None:
        return DefragmentationPlanView()
    return DefragmentationPlanView(
        plan.whom.name, plan.whom.namespace, _nodes(plan.seats), tuple(_view(move) for move in plan.moves), plan.cost, done
    )


def moves_text(view: DefragmentationPlanView, page: TextPage = TextPage()) -> str:
    """Return the table of moves, and a sentence with their purpose."""
    if not view.whom:
        return "no moves would help: no run waits only because free GPUs are scattered\n"
    columns = (Column("RUN"), Column("FROM"), Column("TO"), Column("GPUS", right=True), Column("COST", right=True))
    rows = [(move.name, ", ".join(move.before), ", ".join(move.after), f"{move.gpus:g}", _cost(move.cost)) for move in view.moves]
    count = phrase.count(len(view.moves), "run")
    action = f"{count} {'was' if len(view.moves) == 1 else 'were'} asked to move" if view.done else f"{count} would move"
    purpose = f"so that {view.whom} starts on {phrase.listing(view.nodes)}; it costs {_cost(view.cost)} of GPU time"
    return table(columns, rows, page) + f"{action}, {purpose}\n"


def _view(move: GangMove) -> RunMoveView:
    gpus = sum(seat.shape.gpus * seat.milli for seat in move.before) / 1000
    before, after = _nodes(move.before), _nodes(move.after)
    if before == after:
        before, after = _devices(move.before), _devices(move.after)
    return RunMoveView(move.key.name, move.key.namespace, before, after, gpus, round(move.cost, 1))


def _nodes(seats: Sequence[TaskSeat]) -> tuple[str, ...]:
    return tuple(sorted({seat.node for seat in seats}))


def _devices(seats: Sequence[TaskSeat]) -> tuple[str, ...]:
    return tuple(sorted({f"{seat.node}/{uuid[:12]}" for seat in seats for uuid in seat.devices}))


def _cost(gpu_seconds: float) -> str:
    return phrase.span(round(gpu_seconds))
