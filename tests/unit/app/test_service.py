"""Services in the loop: replicas are runs, routes follow readiness, and a restart loses nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from fairway.app.idempotency import IdempotencyKey
from fairway.app.loop.loop import ReconcileLoop
from fairway.app.port.serving import ProbeResult, ProbeTarget, ServingPorts
from fairway.app.service import ServiceRequest, ServiceUseCases
from fairway.app.serving.service_turn import ServiceReconciler
from fairway.app.submission import Submission
from fairway.errors import ConflictError, DeniedError, NeverFitsError, NotFoundError, RefusedError, SpecError
from fairway.plan.service import service_command
from fairway.spec.service import ModelService
from fairway.state.job import SubmissionOrigin
from fairway.state.model import ModelSignature, ModelVersion, TensorSpec
from fairway.state.service import ReplicaPhase, ServiceKey, ServiceState
from fairway.state.serving.load import RouteLoad
from fairway.state.serving.route import RoutePlan, RouterFault
from fairway.state.task import TaskExit, TaskKey
from fairway.testing.fake.fake_engine import FakeEngine, FakeMachine
from fairway.testing.fake.memory_store import MemoryStore
from fairway.views.serving.service import EndpointView, service_view

KEY = ServiceKey("default", "mnist")


class Routes:
    """A router that only records the calls."""

    def __init__(self) -> None:
        self.plans: dict[str, RoutePlan] = {}
        self.dropped: list[str] = []
        self.loads: dict[str, RouteLoad] = {}
        self.wrong: dict[str, RouterFault] = {}

    async def start(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    async def close(self) -> None: ...

    async def put(self, plan: RoutePlan) -> int:
        self.plans[plan.service] = plan
        return plan.port or 4711

    async def drop(self, service: str) -> None:
        self.plans.pop(service, None)
        self.dropped.append(service)

    async def look(self) -> dict[str, RouteLoad]:
        return self.loads

    async def troubles(self) -> dict[str, RouterFault]:
        return self.wrong

    async def kept(self) -> list[str]:
        return list(self.plans)


class Eyes:
    """A watch that reports what the test sets."""

    def __init__(self) -> None:
        self.targets: dict[str, ProbeTarget] = {}
        self.ready: set[str] = set()

    def start(self, wake: Callable[[], None]) -> None: ...

    def follow(self, targets: Mapping[str, ProbeTarget]) -> None:
        self.targets = dict(targets)

    def seen(self) -> Mapping[str, ProbeResult]:
        return {name: ProbeResult(name in self.ready) for name in self.targets}

    async def close(self) -> None: ...


class Models:
    """Two versions of one model."""

    def __init__(self) -> None:
        self.aliases = {"champion": 1}
        self.signatures: dict[int, ModelSignature] = {}

    def get(self, reference: str) -> ModelVersion:
        name, _, word = reference.partition("@")
        number = self.aliases.get(word) or (int(word) if word.isdecimal() else 2)
        if name != "mnist":
            message = f"there is no model {name}"
            raise NotFoundError(message)
        return ModelVersion(name, number, "0" * 64, "onnx", 1, 10, 0.0, self.signatures.get(number, ModelSignature()))

    def own(self, reference: str, namespace: str) -> str:
        return reference

    meant = relative = own


class ManualClock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.time = 1_700_000_000.0

    def now(self) -> float:
        return self.time


class OneSecret:
    """A secret store with one secret."""

    def names(self) -> list[str]:
        return ["HF_TOKEN"]


class AsItIs:
    """Accepts code unchanged."""

    async def receive(self, submission: Submission) -> SubmissionOrigin:
        return submission.origin

    async def missing(self, submission: Submission, port: int = 0) -> list[str]:
        return []


class House:
    """A loop with services that can be discarded and recreated over the same store, machine and router."""

    def __init__(self) -> None:
        self.clock, self.store, self.machine = ManualClock(), MemoryStore(), FakeMachine()
        self.routes, self.eyes, self.models = Routes(), Eyes(), Models()
        self.secrets = OneSecret()

    async def open(self) -> None:
        self.engine = FakeEngine(self.machine, self.clock)
        self.loop = ReconcileLoop(self.store, self.engine, self.clock)
        self.turns = ServiceReconciler(self.loop, ServingPorts(self.routes, self.eyes, self.models, "/usr/bin/python3"))
        self.services = ServiceUseCases(self.turns, self.secrets, AsItIs())
        self.loop.companions.append(self.turns)
        await self.loop.start()

    async def settle(self, rounds: int = 6, step: float = 1.1) -> None:
        """Take some turns; every running replica becomes ready."""
        for _ in range(rounds):
            async with self.loop.lock:
                await self.loop.turn()
            self.eyes.ready |= set(self.eyes.targets)
            self.clock.time += step

    async def apply(self, **spec: object) -> str:
        asked = {"metadata": {"name": "mnist"}, "spec": {"model": "mnist@champion", **spec}}
        _, word = await self.services.apply(ServiceRequest(ModelService.model_validate(asked), SubmissionOrigin(user="ana")))
        return word

    @property
    def backends(self) -> list[str]:
        return [backend.name for backend in self.routes.plans[str(KEY)].backends]

    @property
    def running(self) -> list[str]:
        return sorted(key.job for key in self.machine.running)


@pytest.fixture
async def house() -> House:
    made = House()
    await made.open()
    return made


async def test_a_service_gets_a_run_for_its_replica_and_a_route_when_it_answers(house: House) -> None:
    assert await house.apply() == "created"
    async with house.loop.lock:
        await house.loop.turn()
    assert house.running == ["mnist-r1-1"]
    assert house.backends == []
    await house.settle()
    assert house.backends == ["r1-1"]
    run = house.store.get_job(house.services.find(KEY).record.replicas[0].run)
    assert run is not None
    assert run.spec.data == {"model": "model://mnist@1"}
    assert run.spec.roles["replica"].command[:4] == ("/usr/bin/python3", "-I", "-m", "fairway.serving.replica")
    assert house.services.find(KEY).service.port == 4711
    assert await house.apply() == "unchanged"


async def test_what_is_asked_with_a_key_is_done_once(house: House) -> None:
    def ask(model: str) -> ServiceRequest:
        asked = {"metadata": {"name": "mnist"}, "spec": {"model": model}}
        return ServiceRequest(ModelService.model_validate(asked), SubmissionOrigin(user="ana"))

    first = IdempotencyKey("first", "default")
    assert (await house.services.apply(ask("mnist@1"), first))[1] == "created"
    await house.settle()
    second = IdempotencyKey("second", "default")
    assert (await house.services.apply(ask("mnist@2"), second))[1] == "changed"
    await house.settle(90)
    assert house.services.find(KEY).service.stable == 2
    # The answer to the first request is repeated, and the later version stays.
    assert (await house.services.apply(ask("mnist@1"), first))[1] == "created"
    assert (await house.services.apply(ask("mnist@2"), second))[1] == "changed"
    await house.settle()
    assert house.services.find(KEY).service.stable == 2
    with pytest.raises(ConflictError, match="first"):
        await house.services.apply(ask("mnist@2"), first)

    undo = IdempotencyKey("undo", "default")
    await house.services.undo(KEY, undo)
    await house.settle(90)
    assert house.services.find(KEY).service.stable == 1
    await house.services.undo(KEY, undo)
    await house.settle(90)
    assert house.services.find(KEY).service.stable == 1, "undone once, not there and back"


async def test_a_new_version_comes_in_before_the_old_one_goes(house: House) -> None:
    await house.apply()
    await house.settle()
    house.models.aliases["champion"] = 2
    assert await house.apply() == "changed"
    seen: list[list[str]] = []
    for _ in range(150):
        async with house.loop.lock:
            await house.loop.turn()
        seen.append(house.backends)
        house.eyes.ready |= set(house.eyes.targets)
        house.clock.time += 1.1
    assert all(seen), "there was always somebody to answer"
    assert seen[-1] == ["r2-2"]
    assert house.running == ["mnist-r2-2"]
    assert house.services.find(KEY).service.stable == 2


async def test_a_replica_that_dies_is_replaced(house: House) -> None:
    await house.apply()
    await house.settle()
    (task,) = house.machine.running
    house.engine.end(task, TaskExit(1))
    await house.settle(12)
    assert house.running == ["mnist-r1-2"]
    assert house.backends == ["r1-2"]
    gone = next(replica for replica in house.services.find(KEY).record.replicas if replica.number == 1)
    assert gone.phase is ReplicaPhase.GONE
    assert gone.failed


async def test_a_server_that_ends_by_itself_is_not_completed(house: House) -> None:
    await house.apply()
    await house.settle()
    (task,) = house.machine.running
    house.engine.end(task, TaskExit(0))
    await house.settle(12)
    gone = next(replica for replica in house.services.find(KEY).record.replicas if replica.number == 1)
    assert gone.failed
    assert "exited with code 0" in gone.message
    assert "completed" not in gone.message


async def test_a_restart_of_the_daemon_changes_nothing(house: House) -> None:
    await house.apply()
    await house.settle()
    before = (house.running, house.backends, house.services.find(KEY).record.replicas)
    await house.loop.close()
    house.eyes = Eyes()
    await house.open()
    async with house.loop.lock:
        await house.loop.turn()
    assert (house.running, house.backends, house.services.find(KEY).record.replicas) == before
    house.eyes.ready.clear()
    async with house.loop.lock:
        await house.loop.turn()
    assert house.backends == [], "looked at, it does not answer"


async def test_a_wall_clock_that_went_back_with_a_boot_stops_nothing(house: House) -> None:
    """A failed replica is replaced and a release continues, as if the recorded times were now."""
    await house.apply()
    await house.settle()
    house.models.aliases["champion"] = 2
    await house.apply()
    await house.settle()
    for _ in range(2):
        for task in list(house.machine.running):
            house.engine.end(task, TaskExit(1))
        await house.settle(3)
    for task in list(house.machine.running):
        house.engine.end(task, TaskExit(1))
    await house.loop.close()
    house.clock.time -= 7200
    house.eyes = Eyes()
    await house.open()
    await house.settle(12)
    assert house.backends
    await house.settle(300)
    rollout = house.services.find(KEY).service.rollout
    assert rollout is not None
    assert rollout.finished is not None


async def test_a_deleted_service_leaves_nothing(house: House) -> None:
    await house.apply()
    await house.settle()
    async with house.loop.lock:
        service = house.services.find(KEY).service
        await house.turns.put(service_command.deleted(service))
    await house.settle(40)
    assert house.running == []
    assert house.routes.plans == {}
    assert house.store.services() == []
    with pytest.raises(NotFoundError, match="no service mnist"):
        house.services.find(KEY)


async def test_a_service_that_takes_the_name_of_an_earlier_one_has_runs_of_its_own(house: House) -> None:
    await house.apply()
    await house.settle()
    async with house.loop.lock:
        await house.turns.put(service_command.deleted(house.services.find(KEY).service))
    for _ in range(12):
        house.routes.loads = {str(KEY): RouteLoad(house.clock.time, "e")}
        await house.settle(1)
    assert not house.services.is_kept(KEY)
    await house.apply()
    await house.settle()
    assert house.running == ["mnist-r1-2"]
    assert house.backends == ["r1-2"]


async def test_what_cannot_be_served_is_refused_and_changes_nothing(house: House) -> None:
    with pytest.raises(NotFoundError, match="no model cats"):
        await house.apply(model="cats")
    with pytest.raises(RefusedError, match="no secret KEY"):
        await house.apply(secrets=["KEY"])
    with pytest.raises(NeverFitsError, match="can never run here"):
        await house.apply(resources={"cpu": "400"})
    assert house.store.services() == []


async def test_where_others_place_secrets_are_not_the_operators_to_know(house: House) -> None:
    house.loop.places = False
    await house.apply(secrets=["KEY"])
    (record,) = house.store.services()
    assert record.service.revisions[0].spec.secrets == ("KEY",)


async def test_a_promotion_starts_a_release_where_it_is_followed_and_only_once(house: House) -> None:
    await house.apply(follow=True)
    await house.settle()
    house.models.aliases["champion"] = 2
    await house.settle(3)
    assert [revision.model for revision in house.services.find(KEY).service.revisions] == ["mnist@1", "mnist@2"]
    await house.services.undo(KEY)
    await house.settle(80)
    assert len(house.services.find(KEY).service.revisions) == 2, "what was taken back is not tried again"
    assert [name[:2] for name in house.backends] == ["r1"]
    assert house.services.serving(house.models.get("mnist@2")) == "service mnist (revision 2)"


async def test_an_alias_that_comes_back_to_what_serves_is_noted_once_at_most(house: House) -> None:
    """As after a release that was rolled back: the user promotes the previous version again."""
    await house.apply(follow=True)
    await house.settle()
    house.models.aliases["champion"] = 2
    await house.settle(3)
    await house.services.undo(KEY)
    await house.settle(80)
    house.models.aliases["champion"] = 1
    known = len(followed(house))
    await house.settle(10)
    assert len(followed(house)) - known <= 1
    service = house.services.find(KEY).service
    assert (service.stable, len(service.revisions)) == (1, 2)


async def test_an_alias_that_comes_back_in_mid_release_ends_the_release(house: House) -> None:
    await house.apply(follow=True)
    await house.settle()
    house.models.aliases["champion"] = 2
    await house.settle(3)
    house.models.aliases["champion"] = 1
    await house.settle(10)
    service = house.services.find(KEY).service
    assert service.rollout is not None
    assert (service.stable, service.rollout.phase) == (1, "RolledBack")
    assert len(followed(house)) == 2
    house.models.aliases["champion"] = 2
    await house.settle(3)
    assert house.services.find(KEY).service.rollout.target == 3, "promoted again, released again"
    assert len(followed(house)) == 3


def followed(house: House) -> list[str]:
    """Return the messages of the events in which the service followed its model."""
    return [event.message for event in house.store.events_of(f"service:{KEY}") if event.reason == "Followed"]


def renamed(house: House) -> None:
    """Give the second version another input name."""
    for number, name in ((1, "image"), (2, "pixels")):
        inputs = (TensorSpec(name, "FP32", (-1, 784)),)
        house.models.signatures[number] = ModelSignature(inputs, (TensorSpec("logits", "FP32", (-1, 10)),))


async def test_a_release_that_breaks_clients_needs_consent(house: House) -> None:
    renamed(house)
    await house.apply(model="mnist@1")
    await house.settle()
    with pytest.raises(RefusedError, match=r"mnist@2 would break clients of mnist@1: input image: .* -> gone") as caught:
        await house.apply(model="mnist@2")
    assert "--allow-signature-change" in caught.value.fix
    with pytest.raises(RefusedError, match="would break clients"):
        await house.services.checked(house.services.release_ask(KEY, "mnist@2", ""))
    assert len(house.services.find(KEY).service.revisions) == 1
    assert await house.apply(model="mnist@1", replicas={"min": 1, "max": 2}) == "changed", "what serves stays"
    ask = house.services.release_ask(KEY, "mnist@2", "canary", allow_signature_change=True)
    before, after = house.services.find(KEY).service, await house.services.checked(ask)
    assert house.services.signature_changes(before, after) == [
        "input image: FP32[any, 784] -> gone (breaks clients)",
        "input pixels: none -> FP32[any, 784] (breaks clients)",
    ]
    assert (await house.services.apply(ask))[1] == "changed"
    assert house.services.find(KEY).service.rollout.target == 2
    assert (await house.services.apply(ask))[1] == "unchanged"
    again = house.services.release_ask(KEY, "mnist@2", "")
    assert not again.document.spec.rollout.allow_signature_change, "consent holds for one release"


async def test_a_release_by_a_strategy_that_its_guards_do_not_go_with_is_refused(house: House) -> None:
    shadow = {"strategy": "shadow", "guard": {"outputs": {"differ": "1%"}}}
    await house.apply(model="mnist@1", rollout=shadow)
    with pytest.raises(SpecError, match=r"rollout\.guard\.outputs: .* use strategy: shadow"):
        house.services.release_ask(KEY, "mnist@2", "canary")
    assert house.services.release_ask(KEY, "mnist@2", "").document.spec.rollout.strategy == "shadow"
    await house.apply(model="mnist@1", rollout={"strategy": "ab", "guard": {"metric": {"name": "clicks"}}})
    with pytest.raises(SpecError, match=r"rollout\.guard\.metric: .* use strategy: ab"):
        house.services.release_ask(KEY, "mnist@2", "shadow")


async def test_a_promotion_that_breaks_clients_is_not_followed_without_consent(house: House) -> None:
    renamed(house)
    await house.apply(follow=True)
    await house.settle()
    house.models.aliases["champion"] = 2
    await house.settle(3)
    assert [revision.model for revision in house.services.find(KEY).service.revisions] == ["mnist@1"]
    (fault,) = house.loop.faults.of(f"service:{KEY}")
    assert fault.work == "follow model"
    assert "mnist@2 would break clients of mnist@1" in fault.cause
    await house.apply(follow=True, rollout={"allow_signature_change": True})
    await house.settle(3)
    assert [revision.model for revision in house.services.find(KEY).service.revisions] == ["mnist@1", "mnist@2"]


async def test_a_service_does_not_learn_what_its_model_means_without_the_right_to_read_it(house: House) -> None:
    denied = True

    async def check(service: ServiceState) -> None:
        if denied:
            message = f"{service.spec.model} may not be read"
            raise DeniedError(message)

    await house.apply(follow=True)
    await house.settle()
    house.services.guard_following(check)
    house.models.aliases["champion"] = 2
    await house.settle(3)
    assert [revision.model for revision in house.services.find(KEY).service.revisions] == ["mnist@1"]
    (fault,) = house.loop.faults.of(f"service:{KEY}")
    assert (fault.work, fault.cause) == ("follow model", "mnist@champion may not be read")
    denied = False
    house.clock.time += 60.0
    await house.settle(3)
    assert [revision.model for revision in house.services.find(KEY).service.revisions] == ["mnist@1", "mnist@2"]
    assert house.loop.faults.of(f"service:{KEY}") == ()


async def test_routers_of_unknown_services_are_ended(house: House) -> None:
    house.routes.plans["default/old"] = RoutePlan("default/old")
    await house.open()
    assert house.routes.dropped == ["default/old"]


async def test_a_lost_run_counts_as_a_failure(house: House) -> None:
    await house.apply()
    await house.settle()
    (task,) = house.machine.running
    assert isinstance(task, TaskKey)
    house.engine.end(task, TaskExit(None, 9))
    async with house.loop.lock:
        await house.loop.turn()
        await house.loop.turn()
    replica = house.services.find(KEY).record.replicas[0]
    assert replica.failed
    assert "r1-1" not in house.backends


async def test_a_request_that_waits_is_seen_at_once(house: House) -> None:
    await house.apply(replicas={"min": 0, "max": 1}, scaling={"idle": "1s"})
    for _ in range(12):
        house.routes.loads = {str(KEY): RouteLoad(house.clock.time, "e")}
        await house.settle(1)
    assert house.running == []
    async with house.loop.lock:
        await house.loop.turn()
    house.routes.loads = {str(KEY): RouteLoad(house.clock.time, "e", held=1, held_since=house.clock.time, arrived=1)}
    async with house.loop.lock:
        await house.loop.turn()
    assert house.running == [], "it is not yet time to look"
    house.routes.wake()
    async with house.loop.lock:
        await house.loop.turn()
    assert house.running == ["mnist-r1-2"]


async def test_a_replica_that_begins_in_a_turn_is_followed_in_the_next_which_comes_at_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.apply()
    woken: list[int] = []
    monkeypatch.setattr(house.loop, "wake", lambda: woken.append(len(house.machine.running)))
    while not house.machine.running:
        async with house.loop.lock:
            await house.loop.turn()
    assert house.eyes.targets == {}, "its services had their part of this turn before"
    assert woken[-1] == 1, "the next turn is not left to the clock"
    async with house.loop.lock:
        await house.loop.turn()
    assert set(house.eyes.targets) == {"default.services/mnist-r1-1"}
    woken.clear()
    async with house.loop.lock:
        await house.loop.turn()
    assert woken == [], "nothing is new"


async def test_a_replica_that_drains_is_left_alone(house: House) -> None:
    await house.apply()
    await house.settle()
    assert set(house.eyes.targets) == {"default.services/mnist-r1-1"}
    async with house.loop.lock:
        await house.turns.put(service_command.deleted(house.services.find(KEY).service))
        await house.loop.turn()
    assert house.services.find(KEY).record.replicas[0].phase is ReplicaPhase.DRAINING
    assert house.eyes.targets == {}, "whoever asks it would keep it from ending"


async def test_a_router_that_lacks_a_process_is_told_its_plan_again(house: House) -> None:
    await house.apply()
    await house.settle()
    told = house.routes.plans.pop(str(KEY))
    house.routes.wrong = {str(KEY): RouterFault("its keeper has ended", answers=True)}
    await house.settle(1)
    assert house.routes.plans == {str(KEY): told}
    assert house.services.faults(house.services.find(KEY)) == ()


async def test_a_service_whose_port_does_not_answer_fails_until_it_does(house: House) -> None:
    await house.apply()
    await house.settle()
    house.routes.plans.clear()
    house.routes.wrong = {str(KEY): RouterFault("nothing answers at port 4711", answers=False, lacks_process=False)}

    def phase() -> str:
        standing = house.services.find(KEY)
        endpoint = EndpointView(house.services.url_of(standing.service))
        return service_view(standing.record, standing.measured, endpoint, house.services.faults(standing)).phase

    assert phase() == "Ready"
    await house.settle(1)
    assert phase() == "Failing"
    (fault,) = house.services.faults(house.services.find(KEY))
    assert fault.text == "answer requests failed: nothing answers at port 4711"
    assert house.routes.plans == {}, "to tell a router that lives its plan again repairs nothing"
    for _ in range(100):
        await house.settle(1)
    assert phase() == "Failing"
    house.routes.wrong = {}
    await house.settle(1)
    assert phase() == "Ready"
    assert house.services.faults(house.services.find(KEY)) == ()
