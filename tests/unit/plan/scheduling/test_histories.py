"""Invariants for random histories of nodes, queues and runs, played on machines that do not exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairway.plan.scheduling import scheduler_memory
from fairway.plan.scheduling.cluster import ClusterModel
from fairway.plan.scheduling.decision import EvictDecision, EvictionCause
from fairway.plan.scheduling.gang import CapacityShortfall, GangRole, GangShape, TaskNodeSelector, TaskShape
from fairway.state.job import JobKey
from fairway.state.queue import Queue
from fairway.testing.fake.fake_cluster import GRACE, FakeCluster, machine

QUEUES = ["a", "b", "default"]
KINDS = ["T4", "A100"]
POLICIES = ["best-fit", "fairway"]

quick = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))

shapes = st.builds(
    TaskShape,
    cpu=st.sampled_from([1000, 1000, 4000]),
    memory=st.sampled_from([0, 1024]),
    gpus=st.sampled_from([0, 1, 1, 1, 2]),
    gpu_milli=st.sampled_from([300, 500, 1000, 1000]),
    gpu_types=st.sampled_from([(), (), (), ("T4",), ("A100", "T4")]),
    other=st.sampled_from([(), (), (), (), (("nic", 1),)]),
)


@st.composite
def gangs(draw: st.DrawFn) -> GangShape:
    parts = []
    for role in ["worker", "server"][: draw(st.sampled_from([1, 1, 1, 2]))]:
        shape = draw(shapes)
        least = draw(st.sampled_from([1, 1, 2, 3]))
        together = "" if shape.shares and shape.gpus > 1 else "together"
        spread = draw(st.sampled_from(["", "", "", "", "apart", together]))
        most = least + draw(st.sampled_from([0, 0, 1, 3]))
        parts.append(GangRole(role, shape, least, most, together=spread == "together", apart=spread == "apart"))
    return GangShape(tuple(parts), draw(st.sampled_from([False, False, False, False, True])))


queues = st.builds(
    Queue,
    name=st.sampled_from(QUEUES),
    weight=st.sampled_from([1.0, 1.0, 3.0]),
    quota=st.sampled_from([{}, {}, {"gpu": 3000}, {"gpu:T4": 2000, "gpu:A100": 2000}, {"cpu": 9000}]),
    per_user=st.sampled_from([{}, {}, {"runs": 2}, {"gpu": 2000}]),
    borrow=st.booleans(),
    time_slice=st.sampled_from([None, None, 600.0]),
)
nodes = st.builds(
    lambda name, gpus, kind, cpu, rack, sick, nic: machine(name, gpus, kind, cpu=cpu, rack=rack, sick=min(sick, gpus), nic=nic),
    st.sampled_from(["n0", "n1", "n2", "n3"]),
    st.sampled_from([2, 4]),
    st.sampled_from(KINDS),
    st.sampled_from([8, 16]),
    st.sampled_from(["", "r1", "r2"]),
    st.sampled_from([0, 0, 0, 1]),
    st.integers(0, 2),
)
Step = Callable[[FakeCluster], object]


def _asks(asked: GangShape, queue: str, user: str, priority: int, limit: float | None, resumes: bool) -> Step:
    def step(floor: FakeCluster) -> None:
        floor.ask(
            f"r{floor.submitted:02}", asked, queue=queue, user=user, name=user, priority=priority, limit=limit, resumes=resumes
        )

    return step


def _ends(number: int) -> Step:
    return lambda floor: floor.end(sorted(floor.running)[number % len(floor.running)]) if floor.running else None


def _saves(number: int) -> Step:
    return lambda floor: floor.save(sorted(floor.running)[number % len(floor.running)]) if floor.running else None


def _withdraws(number: int) -> Step:
    return lambda floor: floor.withdraw(sorted(floor.waiting)[number % len(floor.waiting)]) if floor.waiting else None


def _node_goes(number: int) -> Step:
    return lambda floor: floor.drop_node(sorted(floor.nodes)[number % len(floor.nodes)]) if len(floor.nodes) > 1 else None


def _queue_goes(number: int) -> Step:
    return lambda floor: floor.drop_queue(sorted(floor.queues)[number % len(floor.queues)]) if floor.queues else None


def _sickens(number: int) -> Step:
    """Return a step that makes an idle device unhealthy."""

    def step(floor: FakeCluster) -> None:
        used = {uuid for running in floor.running.values() for seat in running.seats for uuid in seat.devices}
        idle = [(node, device) for node in floor.nodes.values() for device in node.devices if device.uuid not in used]
        if idle:
            node, sick = idle[number % len(idle)]
            devices = tuple(replace(device, healthy=device.healthy and device != sick) for device in node.devices)
            floor.put_node(replace(node, devices=devices))

    return step


def _node_comes(node: object) -> Step:
    """Return a step that adds a node, or an earlier one unchanged: no run is placed on missing devices."""

    def step(floor: FakeCluster) -> None:
        if node.name not in floor.nodes:  # type: ignore[attr-defined]
            floor.put_node(node)  # type: ignore[arg-type]

    return step


asks = st.builds(
    _asks,
    gangs(),
    st.sampled_from(QUEUES),
    st.sampled_from(["ann", "bob"]),
    st.sampled_from([0, 0, 0, 5]),
    st.sampled_from([None, 300.0, 7200.0]),
    st.booleans(),
)
numbers = st.integers(0, 20)
steps = st.one_of(
    *[asks] * 8,
    st.builds(_ends, numbers),
    st.builds(_ends, numbers),
    st.builds(_saves, numbers),
    st.builds(_withdraws, numbers),
    st.builds(_node_goes, numbers),
    st.builds(_queue_goes, numbers),
    st.builds(_sickens, numbers),
    st.builds(_node_comes, nodes),
    st.builds(lambda queue: lambda floor: floor.put_queue(queue), queues),
)
passing = st.sampled_from([0.0, 0.0, 1.0, 20.0, 40.0, 700.0, 4000.0])
histories = st.lists(st.tuples(steps, passing), min_size=20, max_size=40)
fleets = st.lists(nodes, min_size=2, max_size=4, unique_by=lambda node: node.name)
some_queues = st.lists(queues, max_size=3, unique_by=lambda queue: queue.name)
policies = st.sampled_from(POLICIES)


def play(
    floor: FakeCluster, history: list[tuple[Step, float]], after: Callable[[FakeCluster], object] = FakeCluster.check
) -> None:
    for step, seconds in history:
        step(floor)
        floor.settle()
        after(floor)
        floor.pass_time(seconds)
        after(floor)


@quick
@given(fleets, some_queues, histories, policies)
def test_nothing_is_over_committed_and_no_gang_half_placed(fleet: list, described: list, history: list, policy: str) -> None:
    play(FakeCluster(fleet, described, policy), history)


@quick
@given(fleets, some_queues, histories)
def test_quotas_and_limits_hold_at_every_start(fleet: list, described: list, history: list) -> None:
    """Queues do not change during the history, since runs that are already running would be allowed to stay."""
    floor = FakeCluster(fleet, described)
    floor.put_queue = floor.drop_queue = lambda _: None  # type: ignore[method-assign]
    play(floor, history, FakeCluster.check_rules)


@quick
@given(fleets, some_queues, histories, policies, st.booleans())
def test_one_that_was_made_anew_decides_the_same(
    fleet: list, described: list, history: list, policy: str, backwards: bool
) -> None:
    floor = FakeCluster(fleet, described, policy)
    for number, (step, seconds) in enumerate(history):
        step(floor)
        floor.look_on(backwards=backwards)
        floor.settle()
        floor.pass_time(seconds)
        del floor.schedulers[1 : 1 + number % 3]
    kept = [scheduler.ledger.memory.encode() for scheduler in floor.schedulers]
    assert all(each == kept[0] for each in kept)


def free_places(cluster: ClusterModel, names: list[str]) -> list[tuple[int, ...]]:
    """Return the free resources, as the answers to many small queries."""
    probes = [
        TaskShape(cpu=1000),
        TaskShape(memory=1024),
        TaskShape(gpus=1),
        TaskShape(gpus=1, gpu_milli=100),
        TaskShape(gpus=2, gpu_milli=200),
        TaskShape(other=(("nic", 1),)),
    ]
    return [tuple(cluster.room(replace(probe, where=TaskNodeSelector(nodes=(name,)))) for probe in probes) for name in names]


def check_places(floor: FakeCluster) -> None:
    """Check that exactly the running gangs and the reservations are placed: nothing else is left over."""
    anew = ClusterModel(floor.nodes.values(), "best-fit")
    for running in floor.running.values():
        anew.take(running.seats)
    for reservation in floor.scheduler.ledger.memory.reservations.values():
        anew.take(reservation.seats)
    names = sorted(floor.nodes)
    assert free_places(floor.scheduler.ledger.cluster, names) == free_places(anew, names)


@quick
@given(fleets, some_queues, histories, policies)
def test_every_what_if_is_undone(fleet: list, described: list, history: list, policy: str) -> None:
    play(FakeCluster(fleet, described, policy), history, check_places)


@quick
@given(fleets, some_queues, histories)
def test_what_is_counted_is_what_is_held(fleet: list, described: list, history: list) -> None:
    def check(floor: FakeCluster) -> None:
        ledger = floor.scheduler.ledger
        assert {key: run.seats for key, run in ledger.running.items()} == {key: run.seats for key, run in floor.running.items()}
        assert set(ledger.room.keys()) == set(floor.waiting)
        other = floor.look_on() or floor.schedulers.pop().ledger
        assert {name: held for name, held in other.accounts.used.items() if held} == {
            name: held for name, held in ledger.accounts.used.items() if held
        }
        assert other.accounts.used_by == ledger.accounts.used_by
        assert other.accounts.totals == ledger.accounts.totals
        assert other.active() == ledger.active()

    play(FakeCluster(fleet, described), history, check)


@quick
@given(fleets, some_queues, histories, policies)
def test_with_nothing_new_there_is_an_end_of_evictions(fleet: list, described: list, history: list, policy: str) -> None:
    floor = FakeCluster(fleet, described, policy)
    play(floor, history, lambda _: None)
    floor.pass_time(3600)
    before = len(floor.evictions)
    slices = sum(evict.cause is EvictionCause.SLICE for _, evict in floor.evictions)
    floor.pass_time(6 * 3600)
    told = Counter(evict.cause for _, evict in floor.evictions[before:])
    assert sum(told.values()) - told[EvictionCause.SLICE] <= 2 * len(floor.requests), told
    # Time-shared runs climb through levels that grow by a factor of four: few time slices even in many hours.
    assert told[EvictionCause.SLICE] + slices <= 25 * len(floor.requests) + 50


def would_start(floor: FakeCluster, whom: JobKey, gone: set[JobKey], shrunk: dict[JobKey, tuple[tuple[str, int], ...]]) -> bool:
    """Return whether the run could be placed without the `gone` runs and with the others shrunk to these sizes."""
    cluster = ClusterModel(floor.nodes.values(), floor.policy)
    for key, running in floor.running.items():
        sizes = dict(shrunk.get(key, ()))
        if key not in gone:
            cluster.take(seat for seat in running.seats if seat.index < sizes.get(seat.role, seat.index + 1))
    for name, reservation in floor.scheduler.ledger.memory.reservations.items():
        if name not in (str(whom), *reservation.claims):
            cluster.take(reservation.seats)
    return not isinstance(cluster.place(floor.waiting[whom].gang), CapacityShortfall)


def check_evictions(floor: FakeCluster, evictions: list[EvictDecision]) -> None:
    """Check that the evictions for a run suffice, and that each of them is necessary."""
    for whom in {evict.to_whom for evict in evictions if evict.to_whom is not None}:
        own = [evict for evict in evictions if evict.to_whom == whom]
        others = {key for key, running in floor.running.items() if running.leaving} - {evict.key for evict in own}
        whole = {evict.key for evict in own if evict.cause is not EvictionCause.SHRINK} | others
        shrunk = {evict.key: evict.sizes for evict in own if evict.cause is EvictionCause.SHRINK}
        assert would_start(floor, whom, whole, shrunk), (whom, own)
        queue = floor.scheduler.ledger.queue(floor.waiting[whom].queue)
        if queue.quota or queue.per_user or len(floor.waiting[whom].gang.parts) > 1:
            continue  # Some evictions enforce a rule, and placing gangs of several roles is not exact.
        for evict in own:
            left = {key: sizes for key, sizes in shrunk.items() if key != evict.key}
            assert not would_start(floor, whom, whole - {evict.key}, left), (whom, evict)


@quick
@given(fleets, some_queues, histories)
def test_nobody_is_evicted_for_nothing(fleet: list, described: list, history: list) -> None:
    floor = FakeCluster(fleet, described)
    for step, seconds in history:
        step(floor)
        for decision in floor.settle():
            check_evictions(floor, [evict for evict in decision.evictions if floor.running[evict.key].leaving])
        floor.pass_time(seconds)


@quick
@given(fleets, some_queues, histories, asks)
def test_whoever_others_leave_for_starts_when_they_have_left(fleet: list, described: list, history: list, last: Step) -> None:
    floor = FakeCluster(fleet, described)
    play(floor, history, lambda _: None)
    floor.pass_time(4000)
    before = len(floor.evictions)
    last(floor)
    floor.settle()
    evictions = floor.evictions[before:]
    asked_at, started = floor.now, len(floor.started)
    floor.pass_time(GRACE + 1)
    begun = {start.key for _, start in floor.started[started:]}
    for _, evict in evictions:
        assert evict.to_whom is None or evict.to_whom in begun, (asked_at, evict)


@quick
@given(fleets, some_queues, histories)
def test_memory_survives_being_written_down(fleet: list, described: list, history: list) -> None:
    floor = FakeCluster(fleet, described)
    play(floor, history, lambda _: None)
    kept = floor.scheduler.ledger.memory.encode()
    assert scheduler_memory.decode(kept).encode() == kept
    assert scheduler_memory.decode(kept) == floor.scheduler.ledger.memory
