"""A plan of moves as text."""

from __future__ import annotations

from textwrap import dedent

from fairway.plan.scheduling.gang import TaskSeat, TaskShape
from fairway.plan.scheduling.preemption.defragmentation import GangMove, MovePlan
from fairway.state.job import JobKey
from fairway.views.defragmentation import moves_plan_view, moves_text


def seat(node: str, gpus: int) -> TaskSeat:
    return TaskSeat("worker", 0, TaskShape(gpus=gpus), node, tuple(f"{node}-{index}" for index in range(gpus)))


def plan(*names: str) -> MovePlan:
    moves = tuple(GangMove(JobKey("default", name), (seat("a", 2),), (seat("b", 2),), 140.0) for name in names)
    return MovePlan(JobKey("default", "wide-1"), (seat("a", 4),), moves)


def test_what_would_move_and_what_it_costs() -> None:
    assert moves_text(moves_plan_view(plan("left-1"), done=False)) == dedent("""\
        RUN     FROM  TO  GPUS   COST
        left-1  a     b      2  2m20s
        1 run would move, so that wide-1 starts on a; it costs 2m20s of GPU time
        """)


def test_what_was_asked_to_move() -> None:
    view = moves_plan_view(plan("left-1", "right-1"), done=True)
    assert (view.whom, view.cost, [move.name for move in view.moves], view.done) == ("wide-1", 280.0, ["left-1", "right-1"], True)
    assert moves_text(view).endswith("2 runs were asked to move, so that wide-1 starts on a; it costs 4m40s of GPU time\n")


def test_that_nothing_would_help() -> None:
    assert moves_text(moves_plan_view(None, done=False)).startswith("no moves would help")


def test_on_one_node_the_gpus_are_named() -> None:
    half = TaskShape(gpus=1, gpu_milli=500)
    before, after = (TaskSeat("worker", 0, half, "here", (uuid,), 500) for uuid in ("GPU-11112222-3333", "GPU-44445555-6666"))
    move = GangMove(JobKey("default", "left-1"), (before,), (after,), 30.0)
    view = moves_plan_view(MovePlan(JobKey("default", "wide-1"), (before,), (move,)), done=False).moves[0]
    assert (view.before, view.after, view.gpus) == (("here/GPU-11112222",), ("here/GPU-44445555",), 0.5)
