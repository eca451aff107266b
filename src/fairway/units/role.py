"""Which roles compute, by their conventional names."""

from __future__ import annotations

NON_COMPUTING = frozenset({"ps", "evaluator", "launcher", "scheduler", "server"})
"""Roles whose processes have no rank in the collective."""


def computes(role: str) -> bool:
    """Whether the role's processes are ranks of the collective."""
    return role not in NON_COMPUTING


def leader(roles: tuple[str, ...]) -> str:
    """Return the task whose reports count for the run.

    It is `chief-0`, else `master-0`, `launcher-0`, or the first task of the first computing role.
    """
    for name in ("chief", "master", "launcher"):
        if name in roles:
            return f"{name}-0"
    return f"{next((name for name in roles if computes(name)), roles[0])}-0"
