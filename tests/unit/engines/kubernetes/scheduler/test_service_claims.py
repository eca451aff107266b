"""Replicas of services on a full cluster: pods of a run without a checkpoint stay, and the replica names the run it waits for."""

from __future__ import annotations

from dataclasses import replace

from scheduling_world import Cluster, node, pod

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.objects import Pod

OURS = {annotation.MANAGED_BY: annotation.MANAGER}


def worker(saved: float | None = None, **more: object) -> Pod:
    mark = annotation.GangAnnotation("mnist-1.a0", {"worker": annotation.RoleAnnotation(1, 1, 1)})
    labels = {**OURS, annotation.RUN: "mnist-1", annotation.ROLE: "worker", annotation.INDEX: "0", annotation.ATTEMPT: "0"}
    annotations = annotation.write_gang(replace(mark, saved=saved))
    return pod("mnist-1-worker-0-r0", "4", labels=labels, annotations=annotations, nodeName="n", phase="Running", **more)


def replica(priority: int = 100) -> Pod:
    return pod("web-r1-abc", "2", labels={**OURS, annotation.SERVICE: "web"}, annotations={annotation.PRIORITY: str(priority)})


def evicted(cluster: Cluster) -> list[str]:
    cluster.now += 1
    return [room.eviction.service for room in cluster.follower.decide(cluster.now).rooms]


def test_a_run_that_has_saved_nothing_is_waited_for() -> None:
    cluster = Cluster(node("n"))
    cluster.pod(worker())
    cluster.decide()
    cluster.pod(replica())
    assert evicted(cluster) == []
    assert "mnist-1 has saved nothing and is not evicted" in cluster.why("pod/web-r1-abc")
    cluster.pod(worker(saved=1000.0))
    assert evicted(cluster) == ["web"]


def test_a_service_that_is_more_urgent_than_others_takes_its_place() -> None:
    cluster = Cluster(node("n"))
    cluster.pod(worker())
    cluster.decide()
    cluster.pod(replica(101))
    assert evicted(cluster) == ["web"]
