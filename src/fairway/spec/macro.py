"""Macros in commands and variables: `{{ps_hosts}}`, `{{index}}`, `{{data.train}}`. Substituted as data; no shell is involved.

`{{{{name}}}}` stands for the literal text `{{name}}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from fairway.errors import UsageError
from fairway.units import suggestion

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "job": "the run's name, for example mnist-7",
        "task": "this task's name, for example worker-0",
        "role": "this task's role",
        "index": "index of this task within its role, from 0",
        "rank": "rank of this process among all processes of the world, from 0",
        "local_rank": "rank of this process within its task, from 0",
        "world_size": "number of processes of the world",
        "attempt": "number of earlier starts of this task",
        "processes": "number of processes of this task",
        "host": "this task's own host",
        "address": "this task's own host:port",
        "port": "this task's own port",
        "checkpoint_dir": "the folder of checkpoints",
        "tensorboard_dir": "the folder of event files",
        "shared_dir": "the folder that all tasks and attempts share",
        "master_addr": "the host of rank 0",
        "master_port": "a port on which rank 0 can listen for the other processes",
        "ps_hosts": "addresses of the role ps, separated by commas",
        "worker_hosts": "addresses of the role worker, separated by commas",
    }
)
"""Macros that every job has, with their descriptions. Besides these there are `ROLE_hosts`, `data.NAME` and `output.NAME`."""

_MACRO = re.compile(r"\{\{\{\{(?P<literal>[^{}]*)\}\}\}\}|\{\{\s*(?P<name>[A-Za-z0-9_][A-Za-z0-9_.-]*)\s*\}\}")


def known(roles: Iterable[str] = (), data: Iterable[str] = (), outputs: Iterable[str] = ()) -> frozenset[str]:
    """Return the names of all macros that a job with these roles, inputs and outputs may use."""
    return frozenset(
        (
            *NAMES,
            *(f"{role}_hosts" for role in roles),
            *(f"data.{name}" for name in data),
            *(f"output.{name}" for name in outputs),
        )
    )


def find(text: str) -> list[str]:
    """Return the names of the macros in a text, in order."""
    return [match["name"] for match in _MACRO.finditer(text) if match["name"]]


def expand(text: str, values: Mapping[str, str]) -> str:
    """Return the text with every macro replaced.

    Replacement happens once: a value that looks like a macro is not expanded again. Raises `UsageError` for a macro without a
    value.
    """

    def replace(match: re.Match[str]) -> str:
        if match["literal"] is not None:
            return "{{" + match["literal"] + "}}"
        if match["name"] not in values:
            message = f"{{{{{match['name']}}}}} has no value here"
            raise UsageError(
                message, fix=suggestion.did_you_mean(match["name"], values) or f"use one of {', '.join(sorted(values))}"
            )
        return values[match["name"]]

    return _MACRO.sub(replace, text) if "{{" in text else text
