"""The points at which operator, scheduler and agent crash in the tests: all their writes, in the order of a story.

`tests/architecture/test_api_crash_points.py` finds the writes in the sources and compares: it fails for a write that is in no
story and has no reason here, and for a listed write that the sources no longer contain.
"""

from __future__ import annotations

from collections.abc import Iterable

OPERATOR_OF_JOBS = (
    "api.create/leases",
    "api.apply/services",
    "api.create/secrets",
    "api.create/pods",
    "api.apply/trainingjobs/status",
    "api.create/events",
    "api.replace/leases",
    "api.patch/pods",
    "api.delete/pods",
)
"""The Service of a run is deleted with its object: if that was quicker, there is none left to delete."""
SCHEDULER_OF_JOBS = (
    "api.create/leases",
    "api.bind/pods/binding",
    "api.delete/pods",
    "api.create/events",
    "api.replace/leases",
    "api.apply/pods/status",
    "api.patch/pods",
    "api.evict/pods/eviction",
)
AT_ITS_END = "api.apply/configmaps"
"""What the scheduler writes on a graceful shutdown."""

OPERATOR_OF_SERVICES = (
    "api.apply/apiservices",
    "api.apply/jobqueues",
    "api.create/trainingjobs",
    "api.patch/trainingjobs",
    "api.delete/trainingjobs",
    "api.apply/modelservices",
    "api.apply/services",
    "api.create/secrets",
    "api.apply/deployments",
    "api.apply/httproutes",
    "api.apply/endpointslices",
    "api.delete/endpoints",
    "api.apply/modelservices/status",
    "api.patch/pods",
    "api.apply/configmaps",
    "api.delete/httproutes",
    "api.delete/endpointslices",
    "api.patch/modelservices",
    "api.delete/modelservices",
    "api.delete/deployments",
    "api.delete/services",
)
"""Writes for services, for requests through the record's API, and for queues. Some are in both stories, from different code."""
SCHEDULER_OF_SERVICES = (
    "api.apply/jobqueues/status",
    "api.patch/persistentvolumes",
    "api.patch/persistentvolumeclaims",
)
AGENT = (
    "api.create/gpunodes",
    "api.apply/gpunodes/status",
    "api.apply/nodes/status",
    "api.patch/nodes",
)

STORIES = {
    "operator": {*OPERATOR_OF_JOBS, *OPERATOR_OF_SERVICES},
    "scheduler": {*SCHEDULER_OF_JOBS, AT_ITS_END, *SCHEDULER_OF_SERVICES},
    "agent": {*AGENT},
}
"""By process: all points at which it crashes in some story."""
NOWHERE = {
    ("agent", "api.create/tokenreviews"): "a question: the API server answers it and keeps nothing",
    ("operator", "api.create/tokenreviews"): "a question: the API server answers it and keeps nothing",
    ("operator", "api.create/subjectaccessreviews"): "a question: the API server answers it and keeps nothing",
    ("operator", "api.apply/podgroups"): "for neighbours that place in our stead; applied again before each gang is made",
}
"""Writes without a crash test, and why."""


def places(points: tuple[str, ...]) -> list[str]:
    """Return the moments before and after each point."""
    return [f"{point}:{moment}" for point in points for moment in ("before", "after")]


_VERBS = {"create": "create", "apply": "patch", "patch": "patch", "replace": "update", "delete": "delete"}
_VERBS |= {"bind": "create", "evict": "create"}


def as_seen(points: Iterable[str]) -> set[tuple[str, str]]:
    """Return the writes as the API server logs them: (verb, resource)."""
    found = [point.removeprefix("api.").partition("/") for point in points]
    return {(_VERBS[verb], what) for verb, _, what in found}
