"""Names of replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.plan.service import replica_fleet
from fairway.plan.service.measurement import ServiceMeasurements, ServiceSample
from fairway.plan.service.replica import ROLE, highest_number, new_replica, replica_key, replica_run
from fairway.spec.service import BatchingPolicy
from fairway.state.job import JobKey
from fairway.state.service import ServiceKey, ServiceState
from fairway.state.serving.batching_verdict import BatchingBasis, BatchingVerdict
from fairway.state.serving.load import ReplicaLoad
from fairway.testing.conformance.service_conformance import a_service

KEY = ServiceKey("default", "mnist")


def test_numbers_go_on_after_every_run_of_the_name_and_of_no_other() -> None:
    others = [
        JobKey("default", "mnist-r1-90"),
        replica_key(ServiceKey("other", "mnist"), 1, 91),
        replica_key(ServiceKey("default", "mnist-r1"), 1, 92),
        replica_key(ServiceKey("default", "mnis"), 1, 93),
        JobKey("default.services", "mnist-r1-94-evaluation"),
    ]
    assert highest_number(KEY, []) == 0
    assert highest_number(KEY, others) == 0
    assert highest_number(KEY, [*others, replica_key(KEY, 1, 9), replica_key(KEY, 2, 10)]) == 10
    assert highest_number(ServiceKey("default", "mnist-r1"), others) == 92


@pytest.mark.parametrize(("batching", "words"), [({}, []), ({"mode": "always"}, ["always"]), ({"mode": "never"}, ["never"])])
def test_a_server_gets_the_flag_only_where_batching_is_declared(batching: dict[str, str], words: list[str]) -> None:
    service = a_service()
    spec = service.spec.model_copy(update={"batching": BatchingPolicy.model_validate(batching)})
    run = replica_run(service, replace(service.revisions[0], spec=spec), new_replica(service, 1, 1, 0.0), "python")
    command = list(run.spec.roles[ROLE].command)
    assert [command[at + 1] for at, word in enumerate(command) if word == "--batching"] == words


PROVEN = BatchingVerdict(True, BatchingBasis.PROVEN, rows=64)
SLOW = BatchingVerdict(False, BatchingBasis.UNKNOWN, "took too long")


def learnt(service: ServiceState, **told: BatchingVerdict | None) -> ServiceState:
    """Return the service after replicas of revision 1 have reported these verdicts: `r1_2=PROVEN`."""
    loads = {name.replace("_", "-"): ReplicaLoad(1.0, batching=verdict) for name, verdict in told.items()}
    replicas = [new_replica(service, 1, number, 0.0) for number in (1, 2, 3)]
    return replica_fleet.learn_batching(service, replicas, ServiceMeasurements((ServiceSample(1.0, None, loads),)))


def test_a_revision_learns_from_its_replicas_whether_it_is_batched() -> None:
    service = a_service()
    assert learnt(service) is service
    assert learnt(service, r1_1=None) is service
    once = learnt(service, r1_2=PROVEN)
    assert once.revisions[0].batching == PROVEN
    assert learnt(once, r1_2=PROVEN) is once
    assert learnt(once) is once, "what is known stays when all replicas have gone"
    assert learnt(once, r1_1=PROVEN, r1_2=SLOW, r1_3=None).revisions[0].batching == SLOW
    assert learnt(service, r2_1=PROVEN) is service, "of another revision"
