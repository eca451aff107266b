"""Undoing a release through the annotation of the object."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.objects import CustomObject
from fairway.engines.kubernetes.record.service import written_back
from fairway.plan.service import service_command
from fairway.spec.service import ServiceSpec
from fairway.state.job import SubmissionOrigin
from fairway.state.service import RolloutPhase, ServiceKey, ServiceState

KEY = ServiceKey("team", "adds")


def applied(service: ServiceState | None, spec: dict[str, Any], model: str, now: float, code: str = "") -> ServiceState:
    document = ServiceSpec.model_validate(spec)
    return service_command.applied(
        service, KEY, document, model, "onnx" if model else "", SubmissionOrigin(code_digest=code), {}, now
    )


def released(service: ServiceState) -> ServiceState:
    """Return the service with its release completed."""
    assert service.rollout is not None
    return replace(service, stable=service.rollout.target, rollout=replace(service.rollout, phase=RolloutPhase.DONE))


def as_object(spec: dict[str, Any], **annotations: str) -> CustomObject:
    metadata = {"name": "adds", "uid": "u", "annotations": {f"fairway.dev/{name}": value for name, value in annotations.items()}}
    return msgspec.convert({"metadata": metadata, "spec": msgspec.Raw(msgspec.json.encode(spec))}, CustomObject)


def test_only_what_an_undo_changes_is_written_and_the_next_apply_changes_nothing() -> None:
    first = {"model": "adds@1", "env": {"A": "1"}, "replicas": {"min": 1, "max": 2}}
    second = {"model": "adds@2", "queue": "fast", "hold": "7s", "replicas": {"min": 2, "max": 4}}
    before = released(applied(released(applied(None, first, "adds@1", 1.0)), second, "adds@2", 2.0))
    after = service_command.undone(before, 3.0)
    assert written_back(as_object(second), before, after, "adds@1") == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "add", "path": "/spec/env", "value": {"A": "1"}},
        {"op": "add", "path": "/spec/model", "value": "adds@1"},
        {"op": "remove", "path": "/spec/queue"},
    ]
    there = {"model": "adds@1", "env": {"A": "1"}, "hold": "7s", "replicas": {"min": 2, "max": 4}}
    again = applied(after, there, "adds@1", 4.0)
    assert (again.revisions, again.rollout) == (after.revisions, after.rollout)


def test_a_name_that_means_another_version_by_now_is_replaced_by_the_version() -> None:
    spec = {"model": "adds@champion"}
    before = released(applied(released(applied(None, spec, "adds@1", 1.0)), spec, "adds@2", 2.0))
    after = service_command.undone(before, 3.0)
    assert written_back(as_object(spec), before, after, "adds@1")[1:] == [{"op": "add", "path": "/spec/model", "value": "adds@1"}]
    assert written_back(as_object(spec), before, after, "adds@champion") == []


def test_the_code_of_a_command_goes_back_with_it() -> None:
    spec = {"command": ["serve"]}
    before = released(applied(released(applied(None, spec, "", 1.0)), spec, "", 2.0, "blob:2"))
    place = f"/metadata/annotations/{annotation.CODE.replace('/', '~1')}"
    after = service_command.undone(before, 3.0)
    assert written_back(as_object(spec, code="blob:2"), before, after, "")[1:] == [{"op": "remove", "path": place}]
    forward = service_command.undone(released(after), 4.0)
    assert written_back(as_object(spec), released(after), forward, "")[1:] == [
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": place, "value": "blob:2"},
    ]
