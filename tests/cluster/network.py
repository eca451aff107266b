"""The network of a cluster with real nodes: a switch in its own network namespace, so that the machine's rules stay unchanged.

It uses `10.N.0.0/16`, where N is free on this machine: `10.N.0.0/24` holds this machine (1), the switch with the name server (2)
and the nodes (10 and up), `10.N.K.0/24` the pods of node K, `10.N.128.0/20` the Services. This machine reaches all of them.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cluster.process import Processes, StartError, wait_for

_FIRST, _LAST = 64, 127


@dataclass(frozen=True)
class Plan:
    """The address plan of a cluster."""

    number: int

    @property
    def link(self) -> str:
        """The only interface on this machine."""
        return f"fairway{self.number}"

    @property
    def machine(self) -> str:
        """The address of this machine for nodes and pods; the API server listens here."""
        return f"10.{self.number}.0.1"

    @property
    def switch(self) -> str:
        """The router between the machine and Services, and the name server."""
        return f"10.{self.number}.0.2"

    @property
    def cluster(self) -> str:
        """The addresses of nodes and pods."""
        return f"10.{self.number}.0.0/17"

    @property
    def services(self) -> str:
        """The addresses of Services."""
        return f"10.{self.number}.128.0/20"

    def node(self, index: int) -> str:
        """Return the address of a node; nodes count from 1."""
        return f"10.{self.number}.0.{10 + index}"

    def pods(self, index: int) -> str:
        """Return the addresses of the pods of a node."""
        return f"10.{self.number}.{index}.0/24"


def claim(folder: Path) -> Plan:
    """Claim unused addresses for the cluster of this folder; they are free again when the folder is removed."""
    routes = json.loads(_run("ip", "-j", "route"))
    taken = {route["dst"].split(".")[1] for route in routes if route["dst"].startswith("10.")}
    for number in range(_FIRST, _LAST + 1):
        if str(number) not in taken and _take(folder.parent / f"network-{number}", folder):
            return Plan(number)
    raise StartError(f"no network is free: 10.{_FIRST}.0.0/16 to 10.{_LAST}.0.0/16 are all in use on this machine")


def _take(claim: Path, folder: Path) -> bool:
    """Try to claim N. Creating the link is atomic, so of two clusters that start at the same time only one gets it."""
    if claim.is_symlink() and not claim.exists():
        claim.unlink(missing_ok=True)
    try:
        claim.symlink_to(folder)
    except FileExistsError:
        return False
    return True


def inside(pid: int, *command: str | Path) -> list[str]:
    """Return the command line that runs a command in the network of a process."""
    return ["nsenter", "--target", str(pid), "--net", *map(str, command)]


class Network:
    """The switch of one cluster. It exists as long as the process that holds its namespace; the kernel removes the rest."""

    def __init__(self, plan: Plan, processes: Processes) -> None:
        self.plan = plan
        self._processes = processes

    @property
    def pid(self) -> int:
        """The process that holds the switch's namespace."""
        return self._processes.pid("switch")

    def start(self) -> None:
        """Create the switch and connect this machine."""
        plan = self.plan
        self._processes.start("switch", ["unshare", "--net", "sleep", "infinity"])
        ours = Path("/proc/self/ns/net").readlink()
        wait_for("a network namespace", lambda: Path(f"/proc/{self.pid}/ns/net").readlink() != ours)
        self._in_switch("ip", "link", "set", "lo", "up")
        self._in_switch("ip", "link", "add", "bridge", "type", "bridge")
        self._in_switch("ip", "address", "add", f"{plan.switch}/24", "dev", "bridge")
        self._in_switch("ip", "link", "set", "bridge", "up")
        self._in_switch("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        _run("ip", "link", "add", plan.link, "type", "veth", "peer", "name", "machine", "netns", str(self.pid))
        self._in_switch("ip", "link", "set", "machine", "master", "bridge", "up")
        _run("ip", "address", "add", f"{plan.machine}/24", "dev", plan.link)
        _run("ip", "link", "set", plan.link, "up")
        _run("ip", "route", "add", plan.services, "via", plan.switch)

    def plug_in(self, index: int, pid: int) -> None:
        """Connect the network namespace of a process as node INDEX, and add the routes to its pods."""
        plan, port = self.plan, f"node{index}"
        self._in_switch("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        self._in_switch("ip", "link", "set", port, "master", "bridge", "up")
        for command in (
            ("ip", "link", "set", "lo", "up"),
            ("ip", "address", "add", f"{plan.node(index)}/24", "dev", "eth0"),
            ("ip", "link", "set", "eth0", "up"),
            ("ip", "route", "add", "default", "via", plan.switch),
            ("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"),
        ):
            _run(*inside(pid, *command))
        way = ("ip", "route", "replace", plan.pods(index), "via", plan.node(index))
        _run(*way)
        self._in_switch(*way)

    def cut(self, index: int) -> None:
        """Disconnect a node."""
        self._in_switch("ip", "link", "set", f"node{index}", "down")

    def mend(self, index: int) -> None:
        """Connect it again."""
        self._in_switch("ip", "link", "set", f"node{index}", "up")

    def _in_switch(self, *command: str) -> None:
        _run(*inside(self.pid, *command))


def _run(*command: str) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)}: {ended.stderr}")
    return ended.stdout
