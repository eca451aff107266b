"""Conformance suite of stores for services. Part of `store_conformance`."""

from __future__ import annotations

from dataclasses import replace

from fairway.app.port.port import ChangeSet, Store
from fairway.spec.service import ServiceSpec
from fairway.state.event import RunEvent
from fairway.state.job import JobKey, SubmissionOrigin
from fairway.state.service import (
    ReplicaPhase,
    RevisionPhase,
    RolloutPhase,
    ScaleDecision,
    ServiceKey,
    ServiceRecord,
    ServiceReplica,
    ServiceRevision,
    ServiceRollout,
    ServiceState,
)


def a_service(name: str = "mnist", namespace: str = "default") -> ServiceState:
    """Return a service with one revision."""
    spec = ServiceSpec.model_validate({"model": "mnist@champion", "replicas": {"min": 1, "max": 3}})
    revision = ServiceRevision(1, spec, model="mnist@7", model_format="onnx", created=1.0)
    return ServiceState(ServiceKey(namespace, name), spec, SubmissionOrigin(user="ana"), revisions=(revision,), created=1.0)


class ServiceConformance:
    """The part of the suite about services."""

    def test_services_come_back_as_they_went_in_in_order_of_name(self, store: Store) -> None:
        plain = ServiceRecord(a_service("alpha"))
        service = replace(
            a_service(),
            stable=1,
            rollout=ServiceRollout(0, 1, RolloutPhase.STEPPING, 0, 2.0, 1.0, reason="so far so good", marks={"arrived": 1e9}),
            history=(ServiceRollout(0, 1, RolloutPhase.ROLLED_BACK, finished=3.0, reason="errors 3 % > 1 %"),),
            scale=ScaleDecision(
                2, "rate", "20 a second", ((1.0, 2), (2.0, 1)), (3.0, 4), {1: 12.5}, quiet_since=4.0, changed=1.5
            ),
            floor=1,
            replicas_made=2,
            port=4711,
            labels={"team": "nlp"},
        )
        service = replace(service, revisions=(replace(service.revisions[0], phase=RevisionPhase.GOOD, cold_start=0.5),))
        replicas = (
            ServiceReplica(service.key, 1, 1, JobKey("default.services", "mnist-r1-1"), ReplicaPhase.GONE, 1.0, failed=True),
            ServiceReplica(
                service.key, 1, 2, JobKey("default.services", "mnist-r1-2"), ReplicaPhase.READY, 2.0, 1.0, address="127.0.0.1:4"
            ),
        )
        rich = ServiceRecord(service, replicas)
        event = RunEvent(1.0, "service:default/mnist", "Applied", "by ana")
        store.commit(ChangeSet(services=(rich, plain), events=(event,)))
        assert store.services() == [plain, rich]
        assert store.events_of("service:default/mnist") == [event]
        later = ServiceRecord(replace(service, floor=2))
        store.commit(ChangeSet(services=(later,)))
        assert store.services() == [plain, later]

    def test_a_deleted_service_is_gone_and_its_events_stay(self, store: Store) -> None:
        kept = ServiceRecord(a_service("kept"))
        store.commit(
            ChangeSet(
                services=(kept, ServiceRecord(a_service())), events=(RunEvent(1.0, "service:default/mnist", "Applied", ""),)
            )
        )
        store.commit(ChangeSet(services_deleted=(ServiceKey("default", "mnist"), ServiceKey("default", "nothing"))))
        assert store.services() == [kept]
        assert [event.reason for event in store.events_of("service:default/mnist")] == ["Applied"]
