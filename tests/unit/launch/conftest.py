"""Builds gangs as data: each member has its own ports, so that a mix-up of ports is visible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fairway.launch.task_launch import render
from fairway.launch.topology import GangMember, GangTopology, TaskFolders, TaskLaunch, ports_needed
from fairway.spec.job import JobSpec

FOLDERS = TaskFolders(
    work="/job/code",
    attempt="/job/attempt",
    shared="/job/shared",
    checkpoints="/job/checkpoints",
    tensorboard="/job/tensorboard",
    outputs={"model": "/job/outputs/model"},
    data={"train-set": "/data/train"},
    runtime="/inject",
)


def member(role: str, index: int, place: int, **fields: Any) -> GangMember:
    """Return a member: `worker-1` as the third task of the gang has ports from 20020 on."""
    ports = tuple(range(20000 + 10 * place, 20000 + 10 * place + ports_needed(fields.get("processes", 1))))
    host = fields.get("host", "127.0.0.1").format(index=index)
    return GangMember(role, index, host, ports, **{name: value for name, value in fields.items() if name != "host"})


@pytest.fixture
def launch() -> Callable[..., dict[str, TaskLaunch]]:
    """Return the launch of each task by name: `launch({"worker": 2}, framework="jax", roles={"worker": {...}})`."""

    def make(
        sizes: dict[str, int],
        members: dict[str, dict[str, Any]] | None = None,
        attempt: int = 0,
        starters: dict[str, str] | None = None,
        **spec: Any,
    ) -> dict[str, TaskLaunch]:
        fields = members or {}
        roles = spec.pop("roles", {})
        shape = {
            name: {"command": ("python", "train.py"), "replicas": {"min": count, "max": count}, **roles.get(name, {})}
            for name, count in sizes.items()
        }
        folders = replace(FOLDERS, **spec.pop("folders", {}))
        document = JobSpec.model_validate({"roles": shape, **spec})
        named = [(name, index) for name, count in sizes.items() for index in range(count)]
        gang = tuple(member(name, index, place, **fields.get(name, {})) for place, (name, index) in enumerate(named))
        topology = GangTopology("mnist-7", "default", gang, attempt, starters or {})
        return {each.name: render("mnist-7", document, topology, each, folders) for each in gang}

    return make
