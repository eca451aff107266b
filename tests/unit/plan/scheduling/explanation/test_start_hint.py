"""Changes that would let a waiting run start: each one reported works, and trying them leaves no trace."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.plan.scheduling import scheduler_memory
from fairway.plan.scheduling.delta import NodeChanged, QueueDefined, RunWaiting, RunWithdrawn
from fairway.plan.scheduling.explanation import start_hint
from fairway.plan.scheduling.explanation.start_hint import StartHint, StartHintKind
from fairway.plan.scheduling.gang import GangRole, GangShape, TaskNodeSelector, TaskShape
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.state.job import JobKey
from fairway.state.node import ClusterNode, NodeDevice
from fairway.state.queue import Queue
from fairway.testing.builder.scheduler_builder import asked_in_turn

NOW = 10_000.0


def node(name: str, gpus: int, kind: str = "A100", cpu: float = 64.0, rack: str = "") -> ClusterNode:
    devices = tuple(NodeDevice(f"{name}-{index}", index, kind, 80 << 30) for index in range(gpus))
    return ClusterNode(name, cpu=cpu, memory=256 << 30, devices=devices, rack=rack)


def ask(name: str, gpus: int = 1, tasks: int = 1, at: float = 0.0, **more: object) -> GangRequest:
    """Return a request; keywords of `GangRole` and `TaskShape` are passed to these, the rest to the request."""
    part = {key: more.pop(key) for key in ("together", "apart") if key in more}
    shape = {key: more.pop(key) for key in ("gpu_types", "where", "cpu", "memory") if key in more}
    one = GangRole("worker", TaskShape(**{"cpu": 1000, "gpus": gpus, **shape}), tasks, tasks, **part)  # type: ignore[arg-type]
    return GangRequest(JobKey("default", name), GangShape((one,), bool(more.pop("same_rack", False))), at, **more)  # type: ignore[arg-type]


def scheduler(nodes: list[ClusterNode], *requests: GangRequest, queues: tuple[Queue, ...] = ()) -> Scheduler:
    """Return a scheduler that received these requests, one after the other."""
    made = asked_in_turn(nodes, requests, queues)
    made.decide(NOW)
    return made


def told(made: Scheduler, name: str, *queues: str) -> dict[StartHintKind, StartHint]:
    found = start_hint.cheapest(made.ledger, JobKey("default", name), NOW, queues)
    return {change.kind: change for change in found}


def comes_true(made: Scheduler, change: StartHint) -> bool:
    """Return whether a scheduler in the same state starts the changed run at once, or makes room for it."""
    other = Scheduler(scheduler_memory.decode(made.ledger.memory.encode()))
    for node in made.ledger.nodes.values():
        other.apply(NodeChanged(node), NOW)
    for queue in made.ledger.queues.values():
        other.apply(QueueDefined(queue), NOW)
    for request in made.ledger.room.requests():
        if request.key != change.request.key:
            other.apply(RunWaiting(request), NOW)
    other.apply(RunWithdrawn(change.request.key), NOW)
    fresh = replace(change.request, key=JobKey("default", "fresh-1"), submitted=NOW)
    other.apply(RunWaiting(fresh), NOW)
    decision = other.decide(NOW)
    starts = any(start.key == fresh.key for start in decision.starts)
    return starts or (bool(change.after) and any(evict.to_whom == fresh.key for evict in decision.evictions))


def test_fewer_gpus_fewer_tasks_and_whose_end_would_do() -> None:
    core = scheduler([node("a", 4), node("b", 4)], ask("x-1", 1, limit=20_000.0), ask("y-1", 3), ask("z-1", 4, tasks=2))
    changes = told(core, "z-1")
    assert (changes[StartHintKind.GPUS].value, changes[StartHintKind.GPUS].after) == ("2", ()), (
        "both tasks on the node that is free"
    )
    assert (changes[StartHintKind.REPLICAS].value, changes[StartHintKind.REPLICAS].role) == ("1", "worker")
    assert {key.name for key in changes[StartHintKind.ENDS].after} == {"x-1", "y-1"}
    assert all(comes_true(core, change) for kind, change in changes.items() if kind is not StartHintKind.ENDS)


def test_another_type() -> None:
    core = scheduler(
        [node("a", 4, "A100"), node("b", 4, "T4")], ask("x-1", 2, gpu_types=("A100",)), ask("y-1", 4, gpu_types=("A100",))
    )
    changes = told(core, "y-1")
    assert list(changes)[:2] == [StartHintKind.TYPE, StartHintKind.GPUS], "what costs least comes first"
    assert changes[StartHintKind.TYPE].value == "T4"
    assert changes[StartHintKind.GPUS].value == "2"
    assert changes[StartHintKind.ENDS].after == (JobKey("default", "x-1"),)
    assert all(comes_true(core, change) for kind, change in changes.items() if kind is not StartHintKind.ENDS)


@pytest.mark.parametrize(
    ("wish", "rule"),
    [
        ({"together": True, "tasks": 2, "gpus": 2}, "together"),
        ({"apart": True, "tasks": 3}, "apart"),
        ({"where": TaskNodeSelector(nodes=("a",)), "gpus": 3}, "nodes"),
        ({"where": TaskNodeSelector(labels=(("disk", "ssd"),)), "gpus": 3}, "labels"),
        ({"same_rack": True, "tasks": 2, "gpus": 2}, "same_rack"),
    ],
)
def test_without_a_rule_of_its_placement(wish: dict[str, object], rule: str) -> None:
    first = replace(node("a", 3, rack="r1"), labels={"disk": "ssd"})
    nodes = [first, node("b", 3, rack="r2")]
    core = scheduler(nodes, ask("x-1", 1, where=TaskNodeSelector(nodes=("a",))), ask("y-1", **wish))  # type: ignore[arg-type]
    changes = told(core, "y-1")
    assert changes[StartHintKind.PLACEMENT].value == rule
    assert comes_true(core, changes[StartHintKind.PLACEMENT])


def test_a_higher_priority_if_somebody_would_make_room_and_the_queue_allows_it() -> None:
    low, busy = ask("x-1", 2, priority=3), ask("y-1", 2, priority=9)
    core = scheduler([node("a", 4)], low, busy, ask("z-1", 2))
    change = told(core, "z-1")[StartHintKind.PRIORITY]
    assert (change.value, change.after) == ("4", (JobKey("default", "x-1"),))
    assert comes_true(core, change)
    bound = scheduler([node("a", 4)], low, busy, ask("z-1", 2), queues=(Queue("default", priority=3),))
    assert StartHintKind.PRIORITY not in told(bound, "z-1")


def test_another_queue_when_a_quota_is_in_the_way() -> None:
    queues = (Queue("small", quota={"gpu": 2000}, borrow=False), Queue("large"), Queue("full", quota={"gpu": 0}, borrow=False))
    core = scheduler([node("a", 8)], ask("x-1", 2, queue="small"), ask("y-1", 2, queue="small"), queues=queues)
    changes = told(core, "y-1", "full", "large")
    assert changes[StartHintKind.QUEUE].value == "large"
    assert changes[StartHintKind.ENDS].after == (JobKey("default", "x-1"),), "its end frees the quota"
    assert comes_true(core, changes[StartHintKind.QUEUE])
    assert StartHintKind.GPUS not in changes, "not one GPU is left of the quota"


def test_a_promise_to_be_short_where_places_are_kept_for_others() -> None:
    core = scheduler([node("a", 4)], ask("x-1", 2, limit=90_000.0), ask("y-1", 4), ask("z-1", 1))
    change = told(core, "z-1")[StartHintKind.TIMEOUT]
    assert change.request.limit is not None
    assert 0 < change.request.limit <= 90_000
    assert comes_true(core, change)


def test_less_memory_and_fewer_cores() -> None:
    core = scheduler([node("a", 2, cpu=8.0)], ask("x-1", 1, cpu=5000), ask("y-1", 1, cpu=4000))
    changes = told(core, "y-1")
    assert changes[StartHintKind.CPU].value == "3000"
    assert comes_true(core, changes[StartHintKind.CPU])
    core = scheduler([node("a", 2)], ask("x-1", 1, memory=200 << 10), ask("y-1", 1, memory=100 << 10))
    assert told(core, "y-1")[StartHintKind.MEMORY].value == str(56 << 10)


def test_a_run_that_is_not_there_or_runs_has_no_changes() -> None:
    core = scheduler([node("a", 4)], ask("x-1", 2))
    assert start_hint.cheapest(core.ledger, JobKey("default", "x-1"), NOW) == []
    assert start_hint.cheapest(core.ledger, JobKey("default", "gone-1"), NOW) == []


RUNS = st.lists(
    st.builds(
        lambda gpus, tasks, kind, wish, priority, queue, limit: ask(
            "?", gpus, tasks, gpu_types=kind, priority=priority, queue=queue, limit=limit, **wish
        ),
        st.integers(1, 4),
        st.integers(1, 3),
        st.sampled_from([(), (), ("A100",), ("T4",)]),
        st.sampled_from([{}, {}, {"together": True}, {"apart": True}]),
        st.sampled_from([0, 0, 0, 5]),
        st.sampled_from(["default", "small"]),
        st.sampled_from([None, 600.0, 50_000.0]),
    ),
    min_size=3,
    max_size=12,
)


@given(runs=RUNS, sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4))
@settings(deadline=None, max_examples=40)
def test_what_is_told_to_one_who_waits_alone_comes_true_and_trying_changes_nothing(
    runs: list[GangRequest], sizes: list[int]
) -> None:
    nodes = [node(f"n{index}", size, ("A100", "T4")[index % 2]) for index, size in enumerate(sizes)]
    queues = (Queue("small", quota={"gpu": 3000}, borrow=False, per_user={"runs": 2}), Queue("default"))
    named = [replace(run, key=JobKey("default", f"r-{number}")) for number, run in enumerate(runs)]
    core = scheduler(nodes, *named, queues=queues)
    ledger = core.ledger
    for request in ledger.room.requests():
        before = (ledger.memory.encode(), [ledger.cluster.room(part.shape) for run in runs for part in run.gang.parts])
        found = start_hint.cheapest(ledger, request.key, NOW, ["default", "small"])
        after = (ledger.memory.encode(), [ledger.cluster.room(part.shape) for run in runs for part in run.gang.parts])
        assert before == after
        assert len(found) <= start_hint.MOST_TOLD
        for change in found:
            if change.kind is not StartHintKind.ENDS and len(ledger.room) == 1:
                assert comes_true(core, change), (request.key, change)
