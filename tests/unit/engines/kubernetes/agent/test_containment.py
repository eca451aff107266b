"""Each duty of an agent fails by itself: the others continue, the cause is reported, and it recovers without a restart."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairway.app.system.clock import SystemClock
from fairway.devices.device_probe import DeviceProbe
from fairway.engines.kubernetes import gpu_allocation
from fairway.engines.kubernetes.agent import agent, gpu_node_report, gpu_usage
from fairway.engines.kubernetes.agent.agent import AgentSettings, NodeAgent
from fairway.engines.kubernetes.agent.device_health import DeviceHealth
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.objects import GpuNode, KubernetesNode
from fairway.state import fault
from fairway.state.node import NodeDevice

BOOM = "boom 4711"
DEADLINE = 30.0
WRITES = {"create", "apply", "apply_status", "patch", "replace", "delete"}
FOLDER = Path(agent.__file__).parent
OPERATOR = "system:serviceaccount:fairway-system:fairway-operator"


class Gpus:
    """A probe with results set by the test."""

    service = ""
    healthy = True

    def devices(self, _is_ours: object) -> tuple[NodeDevice, ...]:
        return (NodeDevice("GPU-1", 0, "A100", 80 << 30, healthy=self.healthy),)

    def driver(self) -> str:
        return "570.1"

    def use(self) -> dict[str, float]:
        return {"GPU-1": 0.5}

    def close(self) -> None: ...


class Api:
    """An API server that executes requests, unless the test breaks them, and updates the agent's mirrors."""

    def __init__(self) -> None:
        self.broken: Callable[[str], bool] = lambda _: False
        self.hits = 0
        self.agent: Any = None
        self.done: list[tuple[str, Any]] = []

    def _write(self, what: str, body: Any) -> None:
        if self.broken(what):
            self.hits += 1
            raise RuntimeError(BOOM)
        self.done.append((what, body))

    async def create(self, kind: Any, body: Any, _namespace: str = "") -> Any:
        self._write(f"create/{kind.plural}", body)
        if kind.plural == "tokenreviews":
            return {"status": {"authenticated": True, "audiences": ["fairway-agent"], "user": {"username": OPERATOR}}}
        gpu_node = msgspec.convert(body, GpuNode)
        self.agent._gpu_nodes.put(gpu_node)
        return gpu_node

    async def apply_status(self, kind: Any, body: Any, **_: Any) -> Any:
        self._write(f"apply_status/{kind.plural}", body)
        if kind.plural == "gpunodes":
            known = self.agent._gpu_nodes.get("n1")
            return msgspec.convert({"metadata": body["metadata"], "spec": {"managed": known.spec.managed}, **body}, GpuNode)
        known = self.agent._nodes.get("n1")
        node = msgspec.convert(body, KubernetesNode)
        return msgspec.structs.replace(known, status=msgspec.structs.replace(known.status, conditions=node.status.conditions))

    async def patch(self, kind: Any, _name: str, _namespace: str, operations: Any) -> Any:
        self._write(f"patch/{kind.plural}", operations)
        node = self.agent._nodes.get("n1")
        added = any(operation["op"] == "add" for operation in operations)
        taints = [{"key": gpu_node_report.TAINT.key, "effect": "NoSchedule"}] if added else []
        spec = msgspec.structs.replace(node.spec, taints=msgspec.convert({"taints": taints}, type(node.spec)).taints)
        return msgspec.structs.replace(node, spec=spec)


class House:
    """An agent that uses the API server above."""

    def __init__(self, api: Api) -> None:
        self.api, self.probe = api, Gpus()
        settings = AgentSettings("n1", "127.0.0.1", 0, managed=True, every=0.02, settle=0.0, asked_by=OPERATOR)
        self.agent = self.api.agent = NodeAgent(None, SystemClock(), self.probe, settings)  # type: ignore[arg-type]
        self.agent._nodes.put(msgspec.convert({"metadata": {"name": "n1", "uid": "u"}}, KubernetesNode))

    @property
    def status(self) -> Any:
        found = self.agent._gpu_nodes.get("n1")
        return found.status if found is not None else None

    @property
    def tainted(self) -> bool:
        node = self.agent._nodes.get("n1")
        return node is not None and bool(node.spec.taints)

    @property
    def condition(self) -> str:
        node = self.agent._nodes.get("n1")
        return next((one.status for one in node.status.conditions), "") if node is not None else ""

    def faults(self) -> list[str]:
        return [fault.text for fault in self.agent._faults.all()]

    async def ask(self) -> dict[str, float]:
        return await gpu_usage.ask(f"http://127.0.0.1:{self.agent._port}", "token")

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(DEADLINE):
                while not holds():
                    await asyncio.sleep(0.005)
        except TimeoutError:
            pytest.fail(f"{what} did not come about; {self.faults()}; {self.status}; {self.api.done}")


@asynccontextmanager
async def running(monkeypatch: pytest.MonkeyPatch, prepare: Callable[[House], None]) -> AsyncIterator[House]:
    async def follow(mirror: Informer[Any]) -> None:
        mirror._complete.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Informer, "run", follow)
    monkeypatch.setattr(agent, "LEAST_REST", 0.01)
    monkeypatch.setattr(fault, "FIRST_RETRY", 0.02)
    monkeypatch.setattr(fault, "LONGEST_RETRY", 0.1)
    api = Api()
    monkeypatch.setattr(agent, "ApiClient", lambda _: api)
    house = House(api)
    prepare(house)
    task = asyncio.create_task(house.agent.run())
    try:
        yield house
        assert not task.done(), "the agent ended"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@dataclass(frozen=True)
class Case:
    """A call that fails."""

    what: str
    """`VERB/RESOURCE` of a write, or the name of another function."""
    work: str
    """The duty that reports the cause."""
    shown: bool = True
    """Whether the GpuNode shows the cause; where it cannot be written, only the log does."""
    owner: Any = None

    def __str__(self) -> str:
        return self.what


CASES = [
    Case("create/gpunodes", agent.SAY_GPUS, shown=False),
    Case("apply_status/gpunodes", agent.SAY_GPUS, shown=False),
    Case("apply_status/nodes", "report whether they work"),
    Case("patch/nodes", "keep pods away from broken GPUs"),
    Case("devices", agent.LOOK, owner=Gpus),
    Case("driver", agent.DRIVER, owner=Gpus),
    Case("use", agent.USE, owner=Gpus),
    Case("judge", agent.LOOK, owner=DeviceHealth),
    Case("open", agent.LISTEN, owner=gpu_usage.GpuUsageServer),
    Case("devices_of", agent.RECALL, owner=gpu_allocation),
]
ELSEWHERE = {"create/tokenreviews": "tested below"}


def break_it(house: House, case: Case, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make the call fail; return a function that repairs it."""
    if case.owner is None:
        house.api.broken = lambda what: what == case.what
        return lambda: setattr(house.api, "broken", lambda _: False)
    real = getattr(case.owner, case.what)

    def fails(*_: Any, **__: Any) -> Any:
        house.api.hits += 1
        raise RuntimeError(BOOM)

    monkeypatch.setattr(case.owner, case.what, fails)
    return lambda: monkeypatch.setattr(case.owner, case.what, real)


async def goes_on(house: House, case: Case) -> None:
    """Wait until every duty but the failing one is done."""
    looks = case.what not in ("devices", "judge")
    if case.what != "patch/nodes" and looks:
        await house.until("the taint", lambda: house.tainted)
    if case.what != "apply_status/nodes" and looks:
        await house.until("the condition", lambda: house.condition == "True")
    if case.work != agent.SAY_GPUS:
        await house.until("the GPUs", lambda: house.status is not None and len(house.status.gpus) == 1)
    if case.what not in ("use", "open"):
        assert await house.ask() == {"GPU-1": 0.5}


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_the_other_duties_are_done_and_the_cause_is_shown(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    repairs: list[Callable[[], None]] = []

    def prepare(house: House) -> None:
        if case.what in ("devices", "judge", "devices_of"):
            # An earlier agent has reported its GPUs.
            gpu = {"uuid": "GPU-1", "index": 0, "type": "A100", "healthy": case.what != "devices_of"}
            house.agent._gpu_nodes.put(msgspec.convert({"metadata": {"name": "n1"}, "status": {"gpus": [gpu]}}, GpuNode))
        house.probe.healthy = False
        repairs.append(break_it(house, case, monkeypatch))

    async with running(monkeypatch, prepare) as house:
        if case.what == "use":
            await house.until("it listens", lambda: house.agent._port != 0)
            assert await house.ask() == {}
        await house.until("the failure", lambda: house.api.hits > 0)
        await house.until("the cause", lambda: any(case.work in text and BOOM in text for text in house.faults()))
        await goes_on(house, case)
        if case.shown:
            await house.until("it is shown", lambda: any(BOOM in text for text in house.status.faults))
        for repair in repairs:
            repair()
        if case.what == "use":
            assert await house.ask() == {"GPU-1": 0.5}
        if case.what == "devices_of":
            return  # The report of an earlier agent is read once: the fault expires by itself.
        await house.until("everything is said", lambda: house.tainted and house.condition == "True" and house.agent._port != 0)
        await house.until("nothing fails", lambda: house.faults() == [] and house.status.faults == ())


async def test_a_token_that_cannot_be_judged_is_refused_and_the_next_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch, lambda _: None) as house:
        await house.until("it listens", lambda: house.agent._port != 0)
        house.api.broken = lambda what: what == "create/tokenreviews"
        assert await house.ask() == {}
        house.api.broken = lambda _: False
        assert await house.ask() == {"GPU-1": 0.5}


async def test_a_failure_while_answering_is_the_answers_own() -> None:
    async def fails() -> dict[str, float]:
        raise RuntimeError(BOOM)

    async def everybody(_token: str) -> bool:
        return True

    server = gpu_usage.GpuUsageServer(fails, everybody)
    port = await server.open(0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /use HTTP/1.1\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await server.close()
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert BOOM in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]


def test_every_write_and_every_question_of_the_probe_fails_in_a_case() -> None:
    found = set()
    for path in FOLDER.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                continue
            if call.func.attr in WRITES and ast.unparse(call.func.value).endswith("client"):
                kind = ast.unparse(call.args[0]).rpartition(".")[2]
                plural = {"GPU_NODES": "gpunodes", "NODES": "nodes", "REVIEWS": "tokenreviews"}[kind]
                found.add(f"{call.func.attr}/{plural}")
    methods = {name for name in vars(DeviceProbe) if not name.startswith("_") and name != "service"} - {"close"}
    tried = {case.what for case in CASES}
    assert (found | methods) - tried - set(ELSEWHERE) == set(), "these never fail in a test"
    assert {what for what in tried | set(ELSEWHERE) if "/" in what} - found == set(), "there are no such writes"
