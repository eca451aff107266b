"""Pods of Deployments as replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.operator.log.archive import LogArchive
from fairway.engines.kubernetes.serving import naming
from fairway.engines.kubernetes.serving.replica_engine import ReplicaEngine
from fairway.engines.kubernetes.serving.replica_log import ReplicaLogs
from fairway.errors import NotFoundError, UnavailableError
from fairway.plan.action import ForgetJob, ForgetLogs
from fairway.state.job import JobKey
from fairway.state.service import ServiceKey

KEY = ServiceKey("team", "adds")
RUN = JobKey("team.services", "adds-r1-3")
NOBODY: Any = None


def pod(name: str, service: ServiceKey = KEY, going: bool = False, **labels: str) -> Pod:
    head: dict[str, Any] = {
        "name": name,
        "namespace": service.namespace,
        "labels": {**naming.replica_labels(service, 1), **labels},
    }
    head |= {"deletionTimestamp": "2026-01-01T00:01:00Z"} if going else {}
    return msgspec.convert({"metadata": head}, Pod)


@pytest.fixture
def pods() -> Informer[Pod]:
    return Informer(NOBODY, api_resource.PODS)


@pytest.fixture
def replicas(pods: Informer[Pod], tmp_path: Path) -> ReplicaEngine:
    return ReplicaEngine(NOBODY, pods, ReplicaLogs(LogArchive(NOBODY, tmp_path), pods.get))


def test_a_pod_is_known_as_the_replica_that_it_was_taken_for(replicas: ReplicaEngine, pods: Informer[Pod]) -> None:
    with pytest.raises(NotFoundError, match="team/adds has no pod a"):
        replicas.run_in(KEY, "a")
    pods.put(pod("a"))
    with pytest.raises(UnavailableError, match="a is not assigned to a replica yet"):
        replicas.run_in(KEY, "a")
    pods.put(pod("a", **{annotation.REPLICA: RUN.name}))
    assert replicas.run_in(KEY, "a") == (RUN, False)
    pods.put(pod("b", going=True, **{annotation.REPLICA: RUN.name}))
    assert replicas.run_in(KEY, "b") == (RUN, True)
    for other in (ServiceKey("team", "other"), ServiceKey("else", "adds")):
        with pytest.raises(NotFoundError):
            replicas.run_in(other, "a")


async def test_what_was_brought_of_a_replica_goes_with_its_record_and_not_with_its_log(replicas: ReplicaEngine) -> None:
    gone: list[JobKey] = []
    replicas.forgotten = gone.append
    await replicas.perform([ForgetLogs(RUN)])
    assert gone == []
    await replicas.perform([ForgetJob(RUN)])
    assert gone == [RUN]
