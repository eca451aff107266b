"""The agent's process: polls the devices and reports changes. It writes nothing but its own node's objects."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from fairway.app.loop.fault_register import FaultRegister
from fairway.app.port.port import Clock
from fairway.devices.device_probe import DeviceProbe
from fairway.engines.kubernetes import gpu_allocation
from fairway.engines.kubernetes.agent import gpu_node_report
from fairway.engines.kubernetes.agent.device_health import DeviceHealth
from fairway.engines.kubernetes.agent.gpu_usage import GpuUsageServer
from fairway.engines.kubernetes.agent.token_review import TokenReviewer
from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.connection import ApiConnection
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.client.watch import WatchScope
from fairway.engines.kubernetes.objects import GpuNode, KubernetesNode
from fairway.errors import UsageError
from fairway.runtime.secured.pod_certificate import TOKEN, PodCertificate, authority_of, token_of
from fairway.state.node import NodeDevice

log = logging.getLogger("fairway.agent")

MANAGER = "fairway-agent"
AGENT = "agent"
LOOK, DRIVER, RECALL, LISTEN, USE = "poll the GPUs", "read the driver", "recall", "listen", "measure GPU usage"
SAY_GPUS = "report the GPUs"
"""Duties of the agent that may fail."""
LEAST_REST = 1.0
"""Minimum seconds between two polls, however often our objects change."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The settings of the agent, from its DaemonSet."""

    node: str
    """`FAIRWAY_AGENT_NODE`: the node whose GPUs to report."""
    address: str
    """`FAIRWAY_AGENT_ADDRESS`: this pod's address for other pods."""
    port: int
    """`FAIRWAY_AGENT_PORT`: the port that serves GPU usage."""
    managed: bool
    """`FAIRWAY_AGENT_MANAGED`: whether our scheduler allocates the GPUs of a new node."""
    every: float
    """`FAIRWAY_AGENT_EVERY`: seconds between two polls."""
    settle: float
    """`FAIRWAY_AGENT_SETTLE`: seconds for which a device must work until it counts as healthy again."""
    asked_by: str = ""
    """`FAIRWAY_AGENT_ASKED_BY`: the account that may query GPU usage; empty: none."""
    operator: str = ""
    """`FAIRWAY_AGENT_OPERATOR`: the operator's URL, which issues the certificate of the port (https); empty: no TLS."""
    authority: str = ""
    """`FAIRWAY_AGENT_AUTHORITY`: the file with the authority that signed the operator's certificate."""
    token: str = TOKEN
    """`FAIRWAY_AGENT_OPERATOR_TOKEN`: the file with the token by which this pod authenticates to the operator."""

    @classmethod
    def from_environment(cls, given: Mapping[str, str]) -> AgentSettings:
        """Read the settings from environment variables."""
        node = given.get("FAIRWAY_AGENT_NODE", "")
        if not node:
            message = "FAIRWAY_AGENT_NODE is not set: the agent does not know its node"
            raise UsageError(message, fix="set it from spec.nodeName, as `fairway install kubernetes --plan` shows")
        return cls(
            node=node,
            address=given.get("FAIRWAY_AGENT_ADDRESS", ""),
            port=int(given.get("FAIRWAY_AGENT_PORT") or "0"),
            managed=given.get("FAIRWAY_AGENT_MANAGED") == "true",
            every=float(given.get("FAIRWAY_AGENT_EVERY") or "5"),
            settle=float(given.get("FAIRWAY_AGENT_SETTLE") or "60"),
            asked_by=given.get("FAIRWAY_AGENT_ASKED_BY", ""),
            operator=given.get("FAIRWAY_AGENT_OPERATOR", ""),
            authority=given.get("FAIRWAY_AGENT_AUTHORITY", ""),
            token=given.get("FAIRWAY_AGENT_OPERATOR_TOKEN") or TOKEN,
        )


class NodeAgent:
    """The agent of a node."""

    def __init__(self, connection: ApiConnection, clock: Clock, probe: DeviceProbe, settings: AgentSettings) -> None:
        self._client = ApiClient(connection)
        self._clock = clock
        self._probe = probe
        self._settings = settings
        own = WatchScope(fields=f"metadata.name={settings.node}")
        self._nodes = Informer(self._client, api_resource.NODES, own)
        self._gpu_nodes = Informer(self._client, api_resource.GPU_NODES, own)
        self._leaf = _leaf(settings)
        tls = self._leaf.context if self._leaf is not None else None
        self._server = GpuUsageServer(self._use, TokenReviewer(self._client, settings.asked_by), tls)
        self._endpoint = ""
        self._health = DeviceHealth(settings.settle)
        self._faults = FaultRegister(clock)
        self._devices: tuple[NodeDevice, ...] = ()
        """The devices as they were last found."""
        self._driver = ""
        self._port = 0
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Poll and report until cancelled; reports remain afterwards. Each duty fails by itself and is retried with back-off."""
        following = [asyncio.create_task(mirror.run()) for mirror in (self._nodes, self._gpu_nodes)]
        following += [asyncio.create_task(self._leaf.keep())] if self._leaf is not None else []
        try:
            await self._open()
            await self._nodes.synced()
            await self._gpu_nodes.synced()
            with self._faults.contain(AGENT, RECALL):
                self._recall()
            self._gpu_nodes.listen(self._heard)
            while True:
                self._wake.clear()
                await self._open()
                await self._look()
                await self._say(self._devices)
                await self._rest()
        finally:
            await self._server.close()
            for task in following:
                task.cancel()

    def _recall(self) -> None:
        """Start from the report of an earlier agent, which counts until this one has polled."""
        reported = self._gpu_nodes.get(self._settings.node)
        if reported is not None:
            self._devices = gpu_allocation.devices_of(reported, excluding=False)
            self._driver = reported.status.driver
            self._health = DeviceHealth(self._settings.settle, self._devices)

    async def _open(self) -> None:
        """Start serving GPU usage, unless that is done already."""
        if self._port or not self._faults.due(AGENT, LISTEN):
            return
        with self._faults.contain(AGENT, LISTEN):
            self._port = await self._server.open(self._settings.port)
            if self._settings.address:
                address = self._settings.address
                scheme = "https" if self._leaf is not None else "http"
                self._endpoint = f"{scheme}://{f'[{address}]' if ':' in address else address}:{self._port}"

    async def _look(self) -> None:
        """Poll the devices. While that fails, the last result counts."""
        if self._faults.due(AGENT, LOOK):
            with self._faults.contain(AGENT, LOOK):
                devices = await asyncio.to_thread(self._probe.devices, _anybody)
                self._devices = self._health.judge(devices, time.monotonic())
        if self._faults.due(AGENT, DRIVER):
            with self._faults.contain(AGENT, DRIVER):
                self._driver = await asyncio.to_thread(self._probe.driver)

    def _heard(self, _key: str, _before: GpuNode | None, now: GpuNode | None) -> None:
        if now is None:
            # The report was deleted and must be made from the beginning: devices that have disappeared are forgotten.
            self._health = DeviceHealth(self._settings.settle)
        self._wake.set()

    async def _rest(self) -> None:
        await asyncio.sleep(LEAST_REST)
        try:
            async with asyncio.timeout(max(0.0, self._settings.every - LEAST_REST)):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _say(self, devices: tuple[NodeDevice, ...]) -> None:
        node, gpu_node = self._nodes.get(self._settings.node), self._gpu_nodes.get(self._settings.node)
        if node is None:
            return
        # A node without GPUs has no object, unless there is a failure to show.
        if devices or self._failing() or (gpu_node is not None and gpu_node.status.faults):
            # First, because the scheduler must see an unhealthy device before other components do.
            await self._trying(lambda: self._tell_gpus(node, devices), SAY_GPUS)
        await self._trying(lambda: self._tell_condition(node, devices), "report whether they work")
        await self._trying(lambda: self._tell_taint(node, devices), "keep pods away from broken GPUs")

    async def _trying(self, work: Callable[[], Awaitable[None]], what: str) -> None:
        if not self._faults.due(AGENT, what):
            return
        with self._faults.contain(AGENT, what):
            try:
                await work()
            except errors.Conflict as error:
                log.debug("could not %s: %s; retried at the next poll", what, error)

    def _failing(self) -> tuple[str, ...]:
        """Return the current failures without their counts, so that repeated failures do not cause repeated writes."""
        return tuple(sorted(fault.text for fault in self._faults.all() if fault.work != SAY_GPUS))

    async def _tell_gpus(self, node: KubernetesNode, devices: tuple[NodeDevice, ...]) -> None:
        name = self._settings.node
        gpu_node = self._gpu_nodes.get(name)
        if gpu_node is None or gpu_node.metadata.deletion_timestamp is not None:
            try:
                gpu_node = await self._client.create(
                    api_resource.GPU_NODES, gpu_node_report.new_node(node, self._settings.managed)
                )
            except errors.AlreadyExists:
                return  # The mirror is behind; its update wakes us.
        giver = gpu_node_report.giver_of(node, gpu_node.spec.managed)
        status = gpu_node_report.status_of(devices, self._driver, giver, self._endpoint, self._failing())
        if gpu_node.status != status:
            body = gpu_node_report.status_body(name, status, self._clock.now())
            self._gpu_nodes.put(await self._client.apply_status(api_resource.GPU_NODES, body, manager=MANAGER))

    async def _tell_condition(self, node: KubernetesNode, devices: tuple[NodeDevice, ...]) -> None:
        body = gpu_node_report.condition_body(node, devices, self._clock.now())
        if body is not None:
            self._nodes.put(await self._client.apply_status(api_resource.NODES, body, manager=MANAGER))

    async def _tell_taint(self, node: KubernetesNode, devices: tuple[NodeDevice, ...]) -> None:
        # Writing the condition may have returned a newer state of the node.
        node = self._nodes.get(self._settings.node) or node
        operations = gpu_node_report.taint_patch(node, devices)
        if not operations:
            return
        try:
            self._nodes.put(await self._client.patch(api_resource.NODES, node.metadata.name, "", operations))
        except errors.Invalid as error:
            log.info("another client changed the taints of %s: %s", node.metadata.name, error)

    async def _use(self) -> dict[str, float]:
        usage: dict[str, float] = {}
        with self._faults.contain(AGENT, USE):
            usage.update(await asyncio.to_thread(self._probe.use))
        return usage


def _leaf(settings: AgentSettings) -> PodCertificate | None:
    """Return the source of the port's certificates; None where the port has no TLS."""
    if not settings.operator:
        return None
    return PodCertificate(settings.operator, lambda: token_of(settings.token), lambda: authority_of(settings.authority))


def _anybody(_pid: int) -> bool:
    """Count all processes as users of the GPUs: those of other pods are invisible here, and only they use these devices."""
    return True
