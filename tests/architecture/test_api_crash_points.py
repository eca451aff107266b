"""Every write to a Kubernetes API passes one named hook; the operator, scheduler and agent crash before and after each of them.

The test finds the writes in the sources. The scenarios that crash at them are in
`tests/kubernetes/test_faults_crashes.py` and the module beside it.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import points
from source import modules, name_of, tree

from fairway.app.system import crash_point
from fairway.engines.kubernetes.client.api_path import ApiResource

VERBS = {"create", "apply", "apply_status", "patch", "replace", "delete", "bind", "evict", "scale"}
FIXED = {"bind": "pods/binding", "evict": "pods/eviction"}
"""Verbs that apply to a single resource, and that resource."""
CLIENTS = ("client", "acting", "reading")
"""Suffixes of the names of objects that write to the API."""
WHAT = {
    "engines/kubernetes/operator/queueing_system.py resource": ("podgroups",),
    "engines/kubernetes/serving/service_controller.py resource": ("deployments", "services"),
    "engines/kubernetes/scheduler/queue.py kind": ("jobqueues",),
}
"""The resources written where the sources name the resource by a variable."""
PROCESSES = {
    "engines/kubernetes/operator/": ("operator",),
    "engines/kubernetes/record/": ("operator",),
    "engines/kubernetes/serving/": ("operator",),
    "engines/kubernetes/scheduler/": ("scheduler",),
    "engines/kubernetes/agent/": ("agent",),
    "engines/kubernetes/identity/pod_authenticator.py": ("operator",),
    "engines/kubernetes/leader_election.py": ("operator", "scheduler"),
    "bootstrap/": ("operator",),
    "engines/kubernetes/install/": (),
}
"""Processes that make the writes of each module; none for a command, which the user runs again after it was interrupted."""


def writes(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (verb, expression of the written resource) for every call that writes."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VERBS:
            owner = ast.unparse(node.func.value)
            if owner.lower().endswith(CLIENTS):
                yield node.func.attr, ast.unparse(node.args[0]) if node.args else ""


def written(path: Path) -> Iterator[str]:
    """Yield the crash points that a module passes."""
    for verb, expression in writes(tree(path)):
        for what in [FIXED[verb]] if verb in FIXED else _named(path, expression):
            yield f"api.{verb.removesuffix('_status')}/{what}{'/status' if verb == 'apply_status' else ''}"


def _named(path: Path, expression: str) -> list[str]:
    known = WHAT.get(f"{name_of(path)} {expression}")
    if known is not None:
        return list(known)
    found = ast.parse(expression, mode="eval").body
    sides = [found.body, found.orelse] if isinstance(found, ast.IfExp) else [found]
    resources = [_resource(path, ast.unparse(side)) for side in sides]
    assert None not in resources, f"say in WHAT what {name_of(path)} writes by {expression!r}"
    return [resource.plural for resource in resources if resource is not None]


def _resource(path: Path, name: str) -> ApiResource[Any] | None:
    """Return the resource that the name refers to in the module; None if it is not a resource."""
    found: Any = importlib.import_module("fairway." + name_of(path).removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, ApiResource) else None


def test_every_write_has_a_story_or_a_reason() -> None:
    found: dict[str, set[str]] = {"operator": set(), "scheduler": set(), "agent": set()}
    for path in modules("engines/kubernetes", "bootstrap"):
        if name_of(path).startswith("engines/kubernetes/client/"):
            continue
        owners = [names for place, names in PROCESSES.items() if name_of(path).startswith(place)]
        assert owners or not list(writes(tree(path))), f"say in PROCESSES whose writes those of {name_of(path)} are"
        for process in owners[0] if owners else ():
            found[process].update(written(path))
    excused = {process: {point for name, point in points.NOWHERE if name == process} for process in found}
    known = {process: points.STORIES[process] | excused[process] for process in found}
    for process in found:
        assert found[process] - known[process] == set(), f"{process} writes what is in no story"
        assert known[process] - found[process] == set(), f"{process} does not write that any more"
    assert not any(points.STORIES[process] & excused[process] for process in found), "drop the reasons that are no longer needed"


def test_nothing_is_written_but_through_the_hook() -> None:
    """The connection sends writes from a single place, inside the hook; all verbs use it."""
    direct = [
        f"{name_of(path)}:{node.lineno}"
        for path in modules("engines/kubernetes", "bootstrap")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("connection.call") and _may_write(node)
    ]
    (place,) = direct
    assert place.startswith("engines/kubernetes/client/api.py:"), "use the verbs of Client"
    known = {point.partition("/")[0] for point in set().union(*points.STORIES.values())}
    assert set(crash_point.API_POINTS) - known == {"api.scale"}, "no process of ours scales anything: the autoscaler applies"


def _may_write(call: ast.Call) -> bool:
    method = call.args[1] if len(call.args) > 1 else None
    return not (isinstance(method, ast.Constant) and method.value == "GET")


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("await self._client.create(kinds.PODS, body)", ("create", "kinds.PODS")),
        ("await client.apply_status(kind, body, manager=M)", ("apply_status", "kind")),
        ("await self._acting.delete(A if b else C, name)", ("delete", "A if b else C")),
        ("await self._client.bind(name, space, node, uid=uid)", ("bind", "name")),
    ],
)
def test_a_write_is_seen(code: str, what: tuple[str, str]) -> None:
    assert list(writes(ast.parse(code))) == [what]


def test_what_is_no_write_is_not() -> None:
    code = "await self._client.get(kinds.PODS, name)\ntext.replace('a', 'b')\nself._runs.delete(key)"
    assert list(writes(ast.parse(code))) == []
