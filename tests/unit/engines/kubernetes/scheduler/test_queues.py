"""JobQueue objects: what they describe, and how they stand."""

from __future__ import annotations

import msgspec
from scheduling_world import Cluster, node, pod

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.objects import Custom
from fairway.engines.kubernetes.scheduler import queues


def described(**spec: object) -> Custom:
    return msgspec.json.decode(msgspec.json.encode({"metadata": {"name": "red"}, "spec": spec}), type=Custom)


def test_a_queue_that_cannot_be_understood_is_not_used() -> None:
    assert queues.described("red", described(weight="none")) is None
    found = queues.described("red", described(quota={"cpu": "2"}))
    assert found is not None
    assert found.quota == {"cpu": 2000}


def test_a_queue_says_what_it_holds_and_why_its_runs_wait() -> None:
    cluster = Cluster(node("a", cpu="8"))
    cluster.follower.queue("red", queues.described("red", described(quota={"cpu": "2"}, borrow=False)))
    cluster.pod(*(pod(name, cpu="1500m", annotations={marks.QUEUE: "red"}) for name in ("x", "y", "z")))
    assert len(cluster.decide()) == 1
    (status,) = queues.statuses(cluster.follower.scheduler.ledger, cluster.follower.holds(cluster.now)).values()
    assert (status["running"], status["waiting"], status["used"]) == (1, 2, {"cpu": "1.5"})
    assert status["share"] == "19% of cpu"
    ((reason, count),) = [(one["reason"], one["count"]) for one in status["reasons"]]
    assert (reason, count) == ("quota", 2)


def test_runs_that_the_core_is_not_asked_for_count_as_waiting() -> None:
    cluster = Cluster(node("a"))
    cluster.follower.queue("red", queues.described("red", described()))
    mount = [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]
    cluster.pod(pod("x", annotations={marks.QUEUE: "red"}, volumes=mount))
    assert cluster.decide() == {}
    follower = cluster.follower
    (status,) = queues.statuses(follower.scheduler.ledger, follower.holds(cluster.now), follower.held_back).values()
    assert (status["waiting"], status["reasons"][0]["reason"]) == (1, "placement")
    cluster.gone(pod("x"))
    cluster.decide()
    assert not follower.held_back
