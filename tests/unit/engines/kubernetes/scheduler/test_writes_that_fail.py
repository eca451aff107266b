"""Each write of a scheduler fails in turn: the process lives, other pods are bound, the cause is reported, and it recovers."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from scheduling_world import OURS, gang_pod, node, pod

from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.objects import CustomObject, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from fairway.engines.kubernetes.scheduler import event_writer, gang, gang_binder, gang_evictor, process, volume_binder
from fairway.engines.kubernetes.scheduler.process import SchedulerProcess
from fairway.state import fault

BOOM = "boom 4711"
DEADLINE = 30.0
WRITES = {"create", "apply", "apply_status", "patch", "replace", "delete", "bind", "evict", "scale"}
FOLDER = Path(process.__file__).parent


class Api:
    """An API server that executes requests, unless the test breaks them, and updates the mirrors."""

    def __init__(self) -> None:
        self.process: Any = None
        self.done: list[tuple[str, str, Any]] = []
        """Verb, place (`KIND/NAME`), body."""
        self.broken: Callable[[str, str], bool] = lambda *_: False
        self.hits = 0

    def mirror(self, kind: str) -> Informer[Any]:
        found: Informer[Any] = self.process._mirrors[kind]
        return found

    def _write(self, verb: str, place: str, body: Any = None) -> None:
        if self.broken(verb, place):
            self.hits += 1
            raise RuntimeError(BOOM)
        self.done.append((verb, place, body))

    async def plain(self, _path: str) -> dict[str, Any]:
        return {}

    async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        found = self.mirror("pod").get(f"{namespace}/{name}") if kind.plural == "pods" else None
        if found is None:
            raise errors.NotFound("no such object", asked="get", http=404)
        return found

    async def bind(self, name: str, namespace: str, where: str, **_: Any) -> None:
        self._write("bind", f"pods/{name}", where)
        one: Any = self.mirror("pod").get(f"{namespace}/{name}")
        self.mirror("pod").put(msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, node_name=where)))

    async def delete(self, _kind: Any, name: str, namespace: str, **_: Any) -> bool:
        self._write("delete", f"pods/{name}")
        self.mirror("pod").put(self.mirror("pod").get(f"{namespace}/{name}"), gone=True)
        return True

    async def evict(self, name: str, namespace: str, **_: Any) -> bool:
        self._write("evict", f"pods/{name}")
        self.mirror("pod").put(self.mirror("pod").get(f"{namespace}/{name}"), gone=True)
        return True

    async def create(self, kind: Any, body: Any, _namespace: str = "") -> None:
        self._write("create", f"{kind.plural}/{body['regarding']['name']}", body)

    async def apply(self, kind: Any, body: Any, **_: Any) -> None:
        self._write("apply", f"{kind.plural}/{body['metadata']['name']}", body)

    async def apply_status(self, kind: Any, body: Any, **_: Any) -> None:
        self._write("apply_status", f"{kind.plural}/{body['metadata']['name']}", body)

    async def patch(self, kind: Any, name: str, _namespace: str, operations: Any) -> None:
        self._write("patch", f"{kind.plural}/{name}", operations)
        waits = kind.plural in ("persistentvolumeclaims", "persistentvolumes") and operations[-1]["op"] == "add"
        if waits and not name.startswith("slow"):
            self.mirror("claim").put(claim("data", "Bound"))


class Always:
    """A leader election that is always won."""

    leading = True

    def __init__(self, *_: Any) -> None: ...

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        await work()


def claim(name: str, phase: str = "Pending") -> PersistentVolumeClaim:
    spec = {"storageClassName": "later", "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}"}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, PersistentVolumeClaim)


def storage_class(provisioner: str) -> StorageClass:
    data = {"metadata": {"name": "later"}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    return msgspec.convert(data, StorageClass)


def with_claim(name: str, claim: str) -> Pod:
    return pod(name, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim}}])


def since_long(one: Pod) -> Pod:
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, start_time="2026-01-01T00:00:00Z"))


class House:
    """A scheduler process that uses the API server above."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.process = api.process = SchedulerProcess(None, SystemClock(), "fairway-system", "me")  # type: ignore[arg-type]

    def put(self, kind: str, *things: Any) -> None:
        for thing in things:
            self.api.mirror(kind).put(thing)

    def place(self, name: str) -> str:
        found = self.api.mirror("pod").get(f"team/{name}")
        return found.spec.node_name if found is not None else ""

    def wrote(self, verb: str, place: str, text: str = "") -> bool:
        return any(done[:2] == (verb, place) and text in str(done[2]) for done in self.api.done)

    def causes(self) -> list[str]:
        return [f"{fault.subject}: {fault.text}" for fault in self.process.faults.all()]

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(DEADLINE):
                while not holds():
                    await asyncio.sleep(0.005)
        except TimeoutError:
            pytest.fail(f"{what} did not come about; {self.causes()}; {self.api.done}")


@asynccontextmanager
async def running(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    api = Api()

    async def follow(mirror: Informer[Any]) -> None:
        mirror._complete.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(process, "ApiClient", lambda *_, **__: api)
    monkeypatch.setattr(process, "LeaderElection", Always)
    monkeypatch.setattr(Informer, "run", follow)
    for module, name, value in (
        (process, "TELL_EVERY", 0.01),
        (process, "FREE_AFTER", 0.01),
        (process, "KEEP_EVERY", 0.05),
        (fault, "FIRST_RETRY", 0.02),
        (fault, "LONGEST_RETRY", 0.2),
        (event_writer, "FIRST_RETRY", 0.02),
        (gang_binder, "PAUSES", (0.01, 0.02)),
        (gang_evictor, "PATIENCE", 0.05),
        (gang_evictor, "BUDGET_PAUSE", 0.01),
    ):
        monkeypatch.setattr(module, name, value)
    house = House(api)
    house.put("node", node("a", cpu="2"), node("b", cpu="2"))
    task = asyncio.create_task(house.process.run())
    try:
        yield house
        assert not task.done(), "the scheduler ended"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@dataclass(frozen=True)
class Case:
    """A write that fails."""

    where: str
    """Module, function and verb, as in the sources."""
    broken: Callable[[str, str], bool]
    begin: Callable[[House], None]
    subject: str
    """The object that reports the cause."""
    recovered: Callable[[House], bool]
    """Returns whether the scheduler has recovered after the failure ended."""


def at(verb: str, place: str) -> Callable[[str, str], bool]:
    return lambda *asked: asked == (verb, place)


def waiting(house: House) -> None:
    house.put("pod", pod("victim", cpu="100"))


def lone(house: House) -> None:
    house.put("pod", pod("victim"))


def two(house: House) -> None:
    house.put("pod", gang_pod(0, 2), gang_pod(1, 2))


def described(house: House) -> None:
    data = msgspec.json.encode({"metadata": {"name": "red"}, "spec": {"quota": {"cpu": "2"}}})
    house.put("queue", msgspec.json.decode(data, type=CustomObject))


def crowded(*, ours: bool) -> Callable[[House], None]:
    """A pod must make room on node `a`; the other pod fits on `b`."""

    def begin(house: House) -> None:
        there = {"nodeSelector": {"kubernetes.io/hostname": "a"}, "terminationGracePeriodSeconds": 0}
        labels = OURS if ours else {}
        house.put("pod", since_long(pod("low", "2", nodeName="a", phase="Running", labels=labels, **there)))
        house.put("pod", pod("high", "2", priority=1000, **there))

    return begin


def mounting(provisioner: str, *, name: str = "data") -> Callable[[House], None]:
    def begin(house: House) -> None:
        house.put("class", storage_class(provisioner))
        house.put("claim", claim(name))
        spec = {"capacity": {"storage": "1Gi"}, "storageClassName": "later"}
        ready = {"metadata": {"name": "ready"}, "spec": spec, "status": {"phase": "Available"}}
        if provisioner == "kubernetes.io/no-provisioner":
            house.put("volume", msgspec.convert(ready, PersistentVolume))
        house.put("pod", with_claim("victim", name))

    return begin


FIRST, SECOND = "mnist-1-worker-0-r0", "mnist-1-worker-1-r0"
CASES = [
    Case(
        "gang_binder._bind.bind",
        at("bind", "pods/victim"),
        lone,
        "gang:team/pod/victim",
        lambda house: bool(house.place("victim")),
    ),
    Case(
        "gang_binder._is_taken_back.delete",
        lambda verb, place: (verb, place) in (("bind", f"pods/{SECOND}"), ("delete", f"pods/{FIRST}")),
        two,
        "gang:team/mnist-1",
        lambda house: bool(house.place(SECOND)),
    ),
    Case(
        "gang_evictor._mark.patch",
        at("patch", "pods/low"),
        crowded(ours=True),
        "gang:team/pod/low",
        lambda house: house.wrote("patch", "pods/low"),
    ),
    Case(
        "gang_evictor._delete_if_it_stays.delete",
        at("delete", "pods/low"),
        crowded(ours=True),
        "gang:team/pod/low",
        lambda house: house.place("high") == "a",
    ),
    Case(
        "gang_evictor._evict.evict",
        at("evict", "pods/low"),
        crowded(ours=False),
        "gang:team/pod/low",
        lambda house: house.place("high") == "a",
    ),
    Case(
        "gang_evictor._evict.apply_status",
        at("apply_status", "pods/low"),
        crowded(ours=False),
        "",
        lambda house: house.place("high") == "a",
    ),
    Case(
        "event_writer._say_why.apply_status",
        at("apply_status", "pods/victim"),
        waiting,
        "pod:team/victim",
        lambda house: house.wrote("apply_status", "pods/victim", "needs 100 CPUs"),
    ),
    Case(
        "event_writer._write.create",
        at("create", "events/victim"),
        waiting,
        "scheduler",
        lambda house: house.wrote("create", "events/victim", "needs 100 CPUs"),
    ),
    Case(
        "queue.tell.apply_status",
        at("apply_status", "jobqueues/red"),
        described,
        "queue:red",
        lambda house: house.wrote("apply_status", "jobqueues/red"),
    ),
    Case(
        "memory_store.keep.apply",
        at("apply", "configmaps/fairway-scheduler-memory"),
        lone,
        "scheduler",
        lambda house: house.wrote("apply", "configmaps/fairway-scheduler-memory"),
    ),
    Case(
        "volume_binder._ask.patch",
        at("patch", "persistentvolumeclaims/data"),
        mounting("csi.example"),
        "gang:team/pod/victim",
        lambda house: bool(house.place("victim")),
    ),
    Case(
        "volume_binder._promise.patch",
        at("patch", "persistentvolumes/ready"),
        mounting("kubernetes.io/no-provisioner"),
        "gang:team/pod/victim",
        lambda house: bool(house.place("victim")),
    ),
]
ELSEWHERE = {"volume_binder._take_back.patch": "tested below"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.where)
async def test_another_pod_is_bound_and_the_cause_is_shown(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as house:
        house.api.broken = case.broken
        case.begin(house)
        await house.until("the failure", lambda: house.api.hits > 0)
        house.put("pod", pod("other"))
        await house.until("the other pod is bound", lambda: bool(house.place("other")))
        if case.subject:
            await house.until(
                "the cause is shown",
                lambda: any(cause.startswith(f"{case.subject}: ") and BOOM in cause for cause in house.causes()),
            )
        if case.subject.startswith("gang:"):
            name = case.subject.rpartition("/")[2]
            pods = [FIRST] if name == "mnist-1" else [name]
            await house.until("an event of the pod", lambda: any(house.wrote("create", f"events/{pod}", BOOM) for pod in pods))
        house.api.broken = lambda *_: False
        await house.until("it goes on", lambda: case.recovered(house))
        await house.until("nothing fails", lambda: house.causes() == [])


async def test_a_claim_whose_node_cannot_be_taken_back_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume_binder, "VOLUME_TIMEOUT", 0.05)
    async with running(monkeypatch) as house:
        taken_back = []

        def fails(verb: str, place: str) -> bool:
            asked = (verb, place) == ("patch", "persistentvolumeclaims/slow")
            if asked:
                taken_back.append(1)
            return asked and len(taken_back) % 2 == 0

        house.api.broken = fails
        mounting("csi.example", name="slow")(house)
        await house.until("the failure", lambda: house.api.hits > 1)
        house.put("pod", pod("other"))
        await house.until("the other pod is bound", lambda: bool(house.place("other")))
        await house.until("the cause is shown", lambda: any("slow were not bound" in cause for cause in house.causes()))


@pytest.mark.parametrize("name", ["_decide", "_tell", "_keep"])
async def test_a_loop_that_fails_is_begun_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, times = getattr(SchedulerProcess, name), []

    async def fails(house: SchedulerProcess) -> None:
        times.append(1)
        if len(times) <= 2:
            raise RuntimeError(BOOM)
        await real(house)

    monkeypatch.setattr(SchedulerProcess, name, fails)
    async with running(monkeypatch) as house:
        waiting(house)
        house.put("pod", pod("other"))
        await house.until("the other pod is bound", lambda: bool(house.place("other")))
        await house.until("it turns again", lambda: len(times) > 2)
        await house.until("its reason is told", lambda: house.wrote("apply_status", "pods/victim", "needs 100 CPUs"))


async def test_a_pod_that_cannot_be_placed_says_the_cause_in_its_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    real = gang.request_of

    def fails(key: Any, *more: Any) -> Any:
        if key.name == "pod/victim":
            raise RuntimeError(BOOM)
        return real(key, *more)

    monkeypatch.setattr(gang, "request_of", fails)
    async with running(monkeypatch) as house:
        house.put("pod", pod("victim"), pod("other"))
        await house.until("the other pod is bound", lambda: bool(house.place("other")))
        await house.until("its condition", lambda: house.wrote("apply_status", "pods/victim", BOOM))
        await house.until("its event", lambda: house.wrote("create", "events/victim", BOOM))
        (said,) = [body for verb, place, body in house.api.done if (verb, place) == ("apply_status", "pods/victim")][:1]
        assert said["status"]["conditions"][0]["reason"] == "SchedulerError"
        monkeypatch.setattr(gang, "request_of", real)
        await house.until("the victim is bound", lambda: bool(house.place("victim")))


def test_every_write_of_the_scheduler_fails_in_a_case() -> None:
    found = set()
    for path in sorted(FOLDER.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.AsyncFunctionDef | ast.FunctionDef):
                continue
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in WRITES:
                    owner = ast.unparse(call.func.value)
                    if owner.endswith(("client", "acting", "reading")):
                        found.add(f"{path.stem}.{function.name}.{call.func.attr}")
    tried = {case.where for case in CASES}
    assert found - tried - set(ELSEWHERE) == set(), "these never fail in a test"
    assert (tried | set(ELSEWHERE)) - found == set(), "there are no such writes"
