"""Names of replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.plan.service import fleet
from fairway.plan.service.measured import Measured, Sample
from fairway.plan.service.replica import ROLE, highest_number, new_replica, replica_key, replica_run
from fairway.spec.service import Batching
from fairway.state.batching import BatchingBasis, BatchingVerdict
from fairway.state.job import JobKey
from fairway.state.load import ReplicaLoad
from fairway.state.service import Service, ServiceKey
from fairway.testing.service_conformance import a_service

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
    spec = service.spec.model_copy(update={"batching": Batching.model_validate(batching)})
    run = replica_run(service, replace(service.revisions[0], spec=spec), new_replica(service, 1, 1, 0.0), "python")
    command = list(run.spec.roles[ROLE].command)
    assert [command[at + 1] for at, word in enumerate(command) if word == "--batching"] == words


PROVEN = BatchingVerdict(True, BatchingBasis.PROVEN, rows=64)
SLOW = BatchingVerdict(False, BatchingBasis.UNKNOWN, "took too long")


def learnt(service: Service, **told: BatchingVerdict | None) -> Service:
    """Return the service after replicas of revision 1 have reported these verdicts: `r1_2=PROVEN`."""
    loads = {name.replace("_", "-"): ReplicaLoad(1.0, batching=verdict) for name, verdict in told.items()}
    replicas = [new_replica(service, 1, number, 0.0) for number in (1, 2, 3)]
    return fleet.learn_batching(service, replicas, Measured((Sample(1.0, None, loads),)))


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
