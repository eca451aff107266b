"""All settings from outside. Flags take precedence over the environment, and the environment over `fairway.toml`."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fairway.errors import UsageError
from fairway.sdk.transport import local_path
from fairway.units import quantity

ROUTERS = ("fairway", "envoy", "auto")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the local daemon."""

    home: Path
    """`FAIRWAY_HOME`: the folder of everything that the local engine stores."""
    socket: Path
    """The socket on which the daemon listens."""
    machine_folder: Path
    """`FAIRWAY_MACHINE_DIR`: locks on devices and ports, shared by all homes and users of this machine."""
    node_name: str
    """`FAIRWAY_NODE_NAME`: the name of this machine in views."""
    fake_gpus: str = ""
    """`FAIRWAY_FAKE_GPUS`: simulated devices, for example `4xA100-80GB`."""
    cpus: float | None = None
    """`FAIRWAY_CPUS`: number of cores to allocate, instead of all."""
    resources: str = ""
    """`FAIRWAY_RESOURCES`: other countable resources of this machine, for example `rdma/hca=2,licence=1`."""
    blobs: str = ""
    """`FAIRWAY_BLOBS`: a URI that fsspec supports, for example `s3://bucket/fairway`. The content of models, datasets and code is
    stored there, and this machine caches what it has used.
    """
    router: str = "fairway"
    """`FAIRWAY_ROUTER`: `fairway`; `envoy` for services that Envoy can route to; or `auto`: Envoy where it is installed."""
    hosts: tuple[str, ...] = ()
    """`FAIRWAY_HOSTS`: host names, besides localhost, under which services accept requests, for example
    `gpu7,models.example.org`; `*`: any.
    """
    stall_after: float = 600.0
    """`FAIRWAY_STALL_AFTER`: time after which a run without steps that prints and computes nothing is shown as stalled: `10m`."""
    crash_at: str = ""
    """`FAIRWAY_CRASH_AT`: crash point at which the daemon kills itself; for tests."""
    log_level: str = "INFO"
    """`FAIRWAY_LOG_LEVEL`: log level of the daemon."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Read the daemon's settings from environment variables."""
        home = Path(local_path.find_home())
        settings = cls(
            home=home,
            socket=Path(local_path.find_socket(str(home))),
            machine_folder=Path(environment.get("FAIRWAY_MACHINE_DIR") or "/tmp/fairway-machine"),
            node_name=environment.get("FAIRWAY_NODE_NAME") or socket.gethostname().split(".")[0] or "local",
            fake_gpus=environment.get("FAIRWAY_FAKE_GPUS", ""),
            cpus=_cpus(environment.get("FAIRWAY_CPUS", "")),
            resources=environment.get("FAIRWAY_RESOURCES", ""),
            blobs=environment.get("FAIRWAY_BLOBS", ""),
            router=_router(environment.get("FAIRWAY_ROUTER") or "fairway"),
            hosts=tuple(name.strip() for name in environment.get("FAIRWAY_HOSTS", "").split(",") if name.strip()),
            stall_after=_seconds(environment, "FAIRWAY_STALL_AFTER", 600.0),
            crash_at=environment.get("FAIRWAY_CRASH_AT", ""),
            log_level=environment.get("FAIRWAY_LOG_LEVEL", "INFO").upper(),
        )
        settings.other_resources()  # Raises before the daemon locks its home.
        return settings

    def other_resources(self) -> dict[str, int]:
        """Return the countable resources by name."""
        pairs = (part.split("=", 1) for part in self.resources.split(",") if "=" in part)
        return {name.strip(): self._count(name.strip(), count) for name, count in pairs}

    def _count(self, name: str, count: str) -> int:
        try:
            return int(count)
        except ValueError:
            message = f"FAIRWAY_RESOURCES={self.resources!r}: the count {count!r} of {name} is not a whole number"
            raise UsageError(message, fix=f"write NAME=COUNT, separated by commas: FAIRWAY_RESOURCES={name}=2") from None


def _cpus(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        message = f"FAIRWAY_CPUS={text!r} is not a number"
        raise UsageError(message, fix="write a number of cores: FAIRWAY_CPUS=8; without it, all cores are used") from None


def _seconds(environment: Mapping[str, str], name: str, usual: float) -> float:
    text = environment.get(name, "")
    try:
        return quantity.seconds(text) if text else usual
    except ValueError as error:
        message = f"{name}={text!r} {error}"
        raise UsageError(message, fix=f"write a length of time: {name}=10m") from None


def _router(word: str) -> str:
    if word not in ROUTERS:
        message = f"FAIRWAY_ROUTER={word!r} is not a router"
        raise UsageError(message, fix=f"set it to {', '.join(ROUTERS[:-1])} or {ROUTERS[-1]}")
    return word


def environment() -> dict[str, str]:
    """Return the environment of this process; the only place that reads it for settings."""
    return dict(os.environ)
