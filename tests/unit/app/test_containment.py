"""A failure is contained: an exception in any single call leaves an unrelated run alone and is reported on its own object."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fairway.app.application import Application
from fairway.app.loop.companion import LoopCompanion
from fairway.app.port.port import ChangeSet, Engine, MetricPoint, Observation, Store
from fairway.app.port.serving import ProbeResult, ProbeTarget, ReplicaProber, ServiceRouter, ServingPorts
from fairway.app.service import ServiceRequest
from fairway.app.submission import Submission
from fairway.plan import job as job_plan
from fairway.plan import scheduler_request
from fairway.plan import scheduler_sync as queue_plan
from fairway.plan.action import run_of
from fairway.plan.scheduling import scheduler_memory
from fairway.spec.job import TrainingJob
from fairway.spec.service import ModelService
from fairway.state import observation as state_observation
from fairway.state.fault import LAPSE, LONGEST_RETRY
from fairway.state.job import JobKey, JobState, SubmissionOrigin
from fairway.state.model import ModelVersion
from fairway.state.node import NodeDevice
from fairway.state.phase import JobPhase
from fairway.state.queue import Queue
from fairway.state.service import ServiceKey
from fairway.state.serving.load import RouteLoad
from fairway.state.serving.route import RoutePlan, RouterFault
from fairway.stores.sqlite.store import SqliteStore
from fairway.testing.fake.fake_engine import FakeEngine, FakeMachine

BOOM = "boom 4711"
VICTIM = JobKey("default", "victim-1")
SERVICE = ServiceKey("default", "shop")


class ManualClock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.time = 1_700_000_000.0

    def now(self) -> float:
        return self.time


class Edge:
    """Secrets and submissions in one object: everything is accepted."""

    def names(self) -> list[str]:
        return []

    async def receive(self, submission: Submission) -> SubmissionOrigin:
        return submission.origin

    async def missing(self, submission: Submission, port: int = 0) -> list[str]:
        return []

    def keep(self, key: JobKey, submission: Submission) -> None: ...

    async def fingerprint(self, job: JobState) -> str:
        return "abc"


class Routes:
    """A router that keeps its plans in memory."""

    def __init__(self) -> None:
        self.plans: dict[str, RoutePlan] = {}

    async def start(self, wake: Callable[[], None]) -> None: ...

    async def close(self) -> None: ...

    async def put(self, plan: RoutePlan) -> int:
        self.plans[plan.service] = plan
        return plan.port or 4711

    async def drop(self, service: str) -> None:
        self.plans.pop(service, None)

    async def look(self) -> dict[str, RouteLoad]:
        return {}

    async def troubles(self) -> dict[str, RouterFault]:
        return {}

    async def kept(self) -> list[str]:
        return list(self.plans)


class Eyes:
    """A watch that reports every replica as ready."""

    def __init__(self) -> None:
        self.targets: dict[str, ProbeTarget] = {}

    def start(self, wake: Callable[[], None]) -> None: ...

    def follow(self, targets: Any) -> None:
        self.targets = dict(targets)

    def seen(self) -> dict[str, ProbeResult]:
        return {name: ProbeResult(ready=True) for name in self.targets}

    async def close(self) -> None: ...


class OneModel:
    """A registry with one model."""

    def get(self, reference: str) -> ModelVersion:
        return ModelVersion("mnist", 1, "0" * 64, "onnx", 1, 10, 0.0)

    def meant(self, reference: str, namespace: str) -> str:
        return reference

    def relative(self, reference: str, namespace: str) -> str:
        return reference


class Other:
    """A companion that does nothing."""

    name = "other"

    async def start(self) -> None: ...

    async def turn(self) -> float | None:
        return None

    def has_news(self) -> bool:
        return False

    async def close(self) -> None: ...


class House:
    """An application over fakes and a real store, whose loop turns only when the test calls it."""

    def __init__(self, folder: Path, *, places: bool = True) -> None:
        self.places = places
        self.clock, self.machine = ManualClock(), FakeMachine()
        self.routes, self.eyes, self.models, self.companion = Routes(), Eyes(), OneModel(), Other()
        self._path = folder / "fairway.db"
        self.make()

    def make(self) -> None:
        self.engine = FakeEngine(self.machine, self.clock)
        self.store = SqliteStore(self._path)
        serving = ServingPorts(self.routes, self.eyes, self.models, "/usr/bin/python3")
        edge: Any = Edge()
        self.app = Application(
            self.store,
            self.engine,
            self.clock,
            edge,
            edge,
            None,  # type: ignore[arg-type]
            serving=serving,
            places=self.places,
        )
        self.app.loop.companions.append(self.companion)

    async def close(self) -> None:
        await self.app.loop.close()
        self.store.close()

    async def turns(self, count: int = 8, step: float = 0.4) -> None:
        for _ in range(count):
            async with self.app.loop.lock:
                await self.app.loop.turn()
            self.clock.time += step

    async def submit(self, name: str, *command: str, **spec: object) -> JobState:
        roles = {"worker": {"command": command, "resources": {"cpu": "500m"}}}
        document = TrainingJob.model_validate({"metadata": {"name": name}, "spec": {"roles": roles, **spec}})
        return await self.app.submit(Submission(document))

    async def serve(self) -> None:
        spec = {"model": "mnist@1", "resources": {"cpu": "500m"}}
        document = ModelService.model_validate({"metadata": {"name": SERVICE.name}, "spec": spec})
        assert self.app.services is not None
        await self.app.services.apply(ServiceRequest(document))

    def phase(self, key: JobKey) -> JobPhase | None:
        job = self.app.loop.snapshot.jobs.get(key) or self.store.get_job(key)
        return job.phase if job is not None else None

    def causes(self) -> list[str]:
        return [f"{fault.subject}: {fault.text}" for fault in self.app.loop.faults.all()]


@dataclass(frozen=True)
class Place:
    """A call in which an exception is raised."""

    target: str
    """Attribute path from the house, or the name of a module in `MODULES`."""
    name: str
    subject: str = str(VICTIM)
    """The object that must report the cause."""
    only: Callable[..., bool] = lambda *_args, **_kwargs: True
    early: bool = False
    """Whether the exception is raised before the victim is submitted: its start fails."""
    restart: bool = False
    """Whether it is raised when the loop starts over an existing store."""
    ends: bool = True
    """Whether the victim can be deleted while the failure lasts."""
    end_first: bool = False
    """Whether the failure is reached by ending the victim."""

    def __str__(self) -> str:
        extra = "-early" if self.early else "-restart" if self.restart else "-ending" if self.end_first else ""
        return f"{self.target}.{self.name}{extra}"


MODULES = {
    "job_plan": job_plan,
    "seating": scheduler_request,
    "queue_plan": queue_plan,
    "memory": scheduler_memory,
    "fold": state_observation,
}


def about_victim(*args: object, **_kwargs: object) -> bool:
    """Return whether a call concerns the victim: an argument contains its name."""
    return any(_names_victim(argument) for argument in args)


def _names_victim(value: object) -> bool:
    if isinstance(value, ChangeSet):
        runs = {job.key for job in value.jobs} | {task.key.run for task in value.tasks}
        return VICTIM in runs | {key for key, _ in value.points}
    if isinstance(value, list | tuple):
        return any(_names_victim(each) for each in value)
    if value == VICTIM or getattr(value, "key", None) == VICTIM or getattr(value, "run", None) == VICTIM:
        return True
    key = getattr(value, "key", None)
    if getattr(key, "run", None) == VICTIM:
        return True
    try:
        return run_of(value) == VICTIM  # type: ignore[arg-type]
    except (AttributeError, TypeError):
        return False


def acts(kind: str) -> Callable[..., bool]:
    """Return a predicate: `perform` is called with an action of that kind for the victim."""
    return lambda actions: any(type(action).__name__ == kind and _names_victim(action) for action in actions)


def with_memory(changes: ChangeSet) -> bool:
    return changes.memory is not None


PLACES = [
    Place("engine", "perform", only=acts("CreateTask"), early=True),
    Place("engine", "perform", only=acts("BindGang"), early=True),
    Place("engine", "perform", only=acts("EvictTask"), end_first=True),
    Place("engine", "perform", only=acts("ForgetJob"), ends=False, end_first=True),
    Place("engine", "observe", only=about_victim),
    Place("engine", "measure", only=about_victim),
    Place("engine", "nodes", subject="engine"),
    Place("engine", "release", subject="engine"),
    Place("store", "commit", only=lambda changes: any(task.key.run == VICTIM for task in changes.tasks), early=True),
    Place("store", "commit", only=with_memory, subject="scheduler"),
    Place("store", "tasks_of", only=about_victim, restart=True),
    Place("job_plan", "advance", only=lambda _draft, job: job.key == VICTIM, early=True),
    Place("job_plan", "advance", only=lambda _draft, job: job.key == VICTIM),
    Place("seating", "request_of", only=lambda job, *_: job.key == VICTIM, early=True),
    Place("seating", "running_of", only=lambda job, *_: job.key == VICTIM),
    Place("fold", "fold_report", only=lambda task, _report: task.key.run == VICTIM),
    Place("fold", "fold_progress", only=lambda job, *_: job.key == VICTIM),
    Place("memory", "decode", subject="scheduler", only=lambda data: bool(data), restart=True),
    Place("companion", "start", subject="companion:other", restart=True),
    Place("companion", "turn", subject="companion:other"),
    Place("companion", "has_news", subject="companion:other"),
    Place("routes", "start", subject="companion:services", restart=True),
    Place("routes", "kept", subject="companion:services", restart=True),
    Place("routes", "look", subject="companion:services"),
    Place("routes", "troubles", subject="companion:services"),
    Place("routes", "put", subject=f"service:{SERVICE}", early=True),
    Place("eyes", "start", subject="companion:services", restart=True),
    Place("eyes", "follow", subject="companion:services"),
    Place("eyes", "seen", subject=f"service:{SERVICE}"),
]

ELSEWHERE = {
    Engine: {
        "start": "an engine that cannot start ends the process, which prints the cause",
        "close": "the process ends",
        "kept": "called by recovery at the start",
        "logs": "called by one request, which gets the error",
        "type_in": "called by one request, which gets the error",
        "resize": "called by one request, which gets the error",
        "inside": "called by one request, which gets the error",
        "usage": "called in a task of its own",
    },
    ServiceRouter: {"close": "the process ends", "drop": "tested below"},
    ReplicaProber: {"close": "the process ends"},
    LoopCompanion: {"close": "the process ends"},
    Store: {
        "close": "the process ends",
        "next_number": "called by one request, which gets the error",
        "active_jobs": "rows that cannot be read are left out by the store",
        "job_keys": "reads keys alone",
        "has_job": "reads keys alone",
        "mark_deleted": "part of a ForgetJob, which is broken as a whole",
        "was_deleted": "called by recovery at the start",
        "raise_number": "called by recovery at the start",
        "receipt": "called by one request, which gets the error",
        "unreadable": "called by one request, which gets the error",
        "get_job": "called by one request, or contained with its caller",
        "newest": "called by one request, which gets the error",
        "list_jobs": "called by one request, which gets the error",
        "events_of": "called by one request, which gets the error",
        "events_in": "called by one request, which gets the error",
        "points_of": "called by one request, which gets the error",
        "expired": "a turn without a sweep has planned before",
        "series_names": "called by one request, which gets the error",
        "queues": "rows that cannot be read are left out by the store",
        "memory": "bytes that are not decoded here",
        "services": "rows that cannot be read are left out by the store",
        "tracked": "called by one request, which gets the error",
        "all_tracked": "called by one request, which gets the error",
    },
}
"""Methods of ports that no case below breaks, with the reason."""


@contextmanager
def broken(house: House, place: Place) -> Iterator[list[int]]:
    """Raise an exception at the place within the block; yields a list with one entry per exception."""
    owner: Any = MODULES.get(place.target) or getattr(house, place.target)
    real = getattr(owner, place.name)
    hits: list[int] = []

    def check(*args: Any, **kwargs: Any) -> None:
        if place.only(*args, **kwargs):
            hits.append(1)
            raise RuntimeError(BOOM)

    def call(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return real(*args, **kwargs)

    async def call_async(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return await real(*args, **kwargs)

    users = [owner]
    if inspect.ismodule(owner):
        import fairway.app.loop.observation_fold as observation

        users += [module for module in (observation, queue_plan, job_plan) if getattr(module, place.name, None) is real]
    for user in users:
        setattr(user, place.name, call_async if inspect.iscoroutinefunction(real) else call)
    try:
        yield hits
    finally:
        for user in users:
            setattr(user, place.name, real)


async def reach(house: House, place: Place) -> None:
    """Bring the house to the point of failure: the victim runs, unless its start is what fails."""
    await house.app.loop.start()
    if not place.early:
        await house.submit("victim", "stay")
        await house.serve()
        await house.turns()
        assert house.phase(VICTIM) is JobPhase.RUNNING


async def provoke(house: House, place: Place) -> None:
    """Continue while the call is broken."""
    if place.restart:
        await house.app.loop.start()
    if place.early:
        await house.submit("victim", "stay")
        await house.serve()
    if place.end_first and place.ends:
        await house.app.stop(VICTIM)
    house.machine.observations.append(Observation(VICTIM, (MetricPoint(house.clock.time, 1, {"loss": 0.5}, "worker-0"),)))
    await house.submit("short", "exit", "0")
    await house.turns()


BOTH = [pytest.param(place, True, id=str(place)) for place in PLACES] + [
    pytest.param(place, False, id=f"operator-{place}")
    for place in PLACES
    if place.target not in ("seating", "memory") and place.subject != "scheduler"
]
"""Every case, once where Fairway places runs and once where a cluster's scheduler does."""


@pytest.mark.parametrize(("place", "places"), BOTH)
async def test_an_unrelated_run_goes_on_and_the_broken_object_names_the_cause(place: Place, places: bool, tmp_path: Path) -> None:
    house = House(tmp_path, places=places)
    await reach(house, place)
    if place.restart:
        await house.close()
        house.make()
    with broken(house, place) as hits:
        deleting = None
        if not place.ends:
            deleting = asyncio.create_task(house.app.delete(VICTIM))
            await asyncio.sleep(0)
        await provoke(house, place)
        other = await house.submit("other", "exit", "0")
        await house.turns()
        assert hits, "the failure was never reached"
        assert house.phase(other.key) is JobPhase.SUCCEEDED
        if deleting is not None:
            with pytest.raises(RuntimeError, match=BOOM):
                await deleting
        else:
            named = [cause for cause in house.causes() if cause.startswith(f"{place.subject}: ") and BOOM in cause]
            assert named, f"no fault names the cause: {house.causes()}"
            events = [event for event in house.app.events("") if event.reason == "Fault" and BOOM in event.message]
            assert any(event.subject == place.subject for event in events) or place.target == "store"
    await recovers(house)
    await house.close()


async def recovers(house: House) -> None:
    """Check that, without a restart and within the longest back-off, no failure remains and the victim continues."""
    house.clock.time += LONGEST_RETRY
    await house.turns(12, step=1.0)
    house.clock.time += LAPSE
    assert house.causes() == []
    assert house.phase(VICTIM) in (JobPhase.RUNNING, JobPhase.STOPPED, None)


@pytest.mark.parametrize(("place", "places"), [each for each in BOTH if each.values[0].ends])  # type: ignore[union-attr]
async def test_a_run_is_deleted_while_the_failure_lasts(place: Place, places: bool, tmp_path: Path) -> None:
    house = House(tmp_path, places=places)
    await reach(house, place)
    if place.restart:
        await house.close()
        house.make()
    with broken(house, place) as hits:
        await provoke(house, place)
        assert hits, "the failure was never reached"
        deleting = asyncio.create_task(house.app.delete(VICTIM))
        for _ in range(40):
            await asyncio.sleep(0)
            await house.turns(1)
            if deleting.done():
                break
        await deleting
        assert house.phase(VICTIM) is None
        assert VICTIM in house.machine.forgotten
    await house.close()


@pytest.mark.parametrize(("place", "places"), [each for each in BOTH if not each.values[0].end_first])  # type: ignore[union-attr]
async def test_a_run_is_stopped_while_or_after_the_failure(place: Place, places: bool, tmp_path: Path) -> None:
    house = House(tmp_path, places=places)
    await reach(house, place)
    if place.restart:
        await house.close()
        house.make()
    with broken(house, place) as hits:
        await provoke(house, place)
        assert hits, "the failure was never reached"
        if place.target == "store" and place.restart:
            # The run's record cannot be read: the command fails with the cause instead of hanging.
            with pytest.raises(RuntimeError, match=BOOM):
                await house.app.stop(VICTIM)
        else:
            await house.app.stop(VICTIM)
        await house.turns(12)
    await house.app.stop(VICTIM)
    await recovers(house)
    assert house.phase(VICTIM) is JobPhase.STOPPED
    assert VICTIM not in {key.run for key in house.machine.running}
    await house.close()


async def test_what_a_run_holds_that_cannot_be_planned_is_not_given_away(tmp_path: Path) -> None:
    house = House(tmp_path)
    devices = (NodeDevice("GPU-0", 0), NodeDevice("GPU-1", 1))
    house.machine.node = replace(house.machine.node, devices=devices)
    await house.app.loop.start()

    async def submit(name: str, **resources: str) -> JobState:
        return await house.submit(name, roles={"worker": {"command": ["stay"], "resources": resources}})

    await submit("victim", cpu="3", gpu="1")
    await house.turns()
    assert house.phase(VICTIM) is JobPhase.RUNNING
    with broken(house, Place("seating", "running_of", only=lambda job, *_: job.key == VICTIM)) as hits:
        house.machine.observations.append(Observation(VICTIM, (MetricPoint(house.clock.time, 1, {"loss": 0.5}, "worker-0"),)))
        small = await house.submit("small", "exit", "0")
        await house.turns()
        assert hits
        assert house.phase(small.key) is JobPhase.SUCCEEDED
        large, wide = await submit("large", cpu="2"), await submit("wide", cpu="100m", gpu="2")
        await house.turns()
        assert house.phase(large.key) is JobPhase.PENDING, "it was given cores that the victim holds"
        assert house.phase(wide.key) is JobPhase.PENDING, "it was given a device that the victim holds"
    await recovers(house)
    assert house.phase(large.key) is JobPhase.PENDING
    await house.app.stop(VICTIM)
    await house.turns(12)
    assert house.phase(large.key) is JobPhase.RUNNING
    assert house.phase(wide.key) is JobPhase.RUNNING
    await house.close()


async def test_another_turn_follows_a_retry_though_nothing_else_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an engine that wakes the loop only for its own changes, the next turn sees the result of the retry."""
    house = House(tmp_path, places=False)
    await house.app.loop.start()
    with broken(house, Place("engine", "perform", only=acts("BindGang"))) as hits:
        await house.submit("victim", "stay")
        await house.turns(1)
        assert hits
    woken: list[int] = []
    monkeypatch.setattr(house.app.loop, "wake", lambda: woken.append(1))
    await house.turns(1)
    assert woken == [], "nothing was due yet"
    house.clock.time += LONGEST_RETRY
    await house.turns(1)
    assert woken
    await house.turns(3)
    assert house.phase(VICTIM) is JobPhase.RUNNING
    await house.close()


async def test_a_service_is_deleted_though_its_router_cannot_be_ended(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.app.loop.start()
    await house.serve()
    await house.turns()
    assert house.app.services is not None
    with broken(house, Place("routes", "drop")) as hits:
        deleting = asyncio.create_task(house.app.services.delete(SERVICE))
        for _ in range(60):
            await asyncio.sleep(0)
            await house.turns(1, step=1.0)
            if deleting.done():
                break
        await deleting
        assert hits
        assert house.store.services() == []
        assert any("end router of default/shop" in cause and BOOM in cause for cause in house.causes())
    await recovers(house)
    assert house.routes.plans == {}
    await house.close()


async def test_a_queue_that_breaks_planning_holds_its_own_runs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(tmp_path)
    await house.app.loop.start()
    await house.app.submit_all([], [Queue("bad", weight=2.0)])
    real = queue_plan.QueueDefined

    def fail(queue: Queue) -> Any:
        if queue.name == "bad":
            raise RuntimeError(BOOM)
        return real(queue)

    monkeypatch.setattr(queue_plan, "QueueDefined", fail)
    job = await house.submit("victim", "stay", queue="bad")
    other = await house.submit("other", "exit", "0")
    await house.turns()
    assert house.phase(other.key) is JobPhase.SUCCEEDED
    assert house.phase(job.key) is JobPhase.PENDING
    assert any(cause.startswith("queue:bad: ") and BOOM in cause for cause in house.causes())
    monkeypatch.setattr(queue_plan, "QueueDefined", real)
    house.clock.time += 61.0
    await house.turns()
    assert house.phase(job.key) is JobPhase.RUNNING
    assert house.causes() == []
    await house.close()


def test_every_method_of_the_ports_is_broken_once_or_has_a_reason() -> None:
    names = {Engine: "engine", ServiceRouter: "routes", ReplicaProber: "eyes", LoopCompanion: "companion", Store: "store"}
    for port, target in names.items():
        methods = {name for name, value in inspect.getmembers(port, inspect.isfunction) if not name.startswith("_")}
        tried = {place.name for place in PLACES if place.target == target}
        reasons = set(ELSEWHERE[port])
        assert methods - tried - reasons == set(), f"{port.__name__} has methods that no test breaks"
        assert (tried | reasons) - methods == set(), f"{port.__name__} has no such methods"
        assert tried & reasons == set()
