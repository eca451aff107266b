"""JobQueue objects: their specification and their status."""

from __future__ import annotations

import msgspec
from scheduling_world import OURS, Cluster, node, pod

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.objects import CustomObject
from fairway.engines.kubernetes.scheduler import gang, queue


def described(**spec: object) -> CustomObject:
    return msgspec.json.decode(msgspec.json.encode({"metadata": {"name": "red"}, "spec": spec}), type=CustomObject)


def test_a_queue_that_cannot_be_understood_is_not_used() -> None:
    assert queue.described("red", described(weight="none")) is None
    found = queue.described("red", described(quota={"cpu": "2"}))
    assert found is not None
    assert found.quota == {"cpu": 2000}


def test_a_queue_says_what_it_holds_and_why_its_runs_wait() -> None:
    cluster = Cluster(node("a", cpu="8"))
    cluster.follower.queue("red", queue.described("red", described(quota={"cpu": "2"}, borrow=False)))
    cluster.pod(*(pod(name, cpu="1500m", labels=OURS, annotations={annotation.QUEUE: "red"}) for name in ("x", "y", "z")))
    assert len(cluster.decide()) == 1
    (status,) = queue.statuses(cluster.follower.scheduler.ledger, cluster.follower.holds(cluster.now)).values()
    assert (status["running"], status["waiting"], status["used"]) == (1, 2, {"cpu": "1.5"})
    assert status["share"] == "19% of cpu"
    ((reason, count),) = [(one["reason"], one["count"]) for one in status["reasons"]]
    assert (reason, count) == ("quota", 2)


def test_runs_that_the_core_is_not_asked_for_count_as_waiting() -> None:
    cluster = Cluster(node("a"))
    cluster.follower.queue("red", queue.described("red", described()))
    mount = [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]
    cluster.pod(pod("x", labels=OURS, annotations={annotation.QUEUE: "red"}, volumes=mount))
    assert cluster.decide() == {}
    follower = cluster.follower
    (status,) = queue.statuses(follower.scheduler.ledger, follower.holds(cluster.now), follower.held_back).values()
    assert (status["waiting"], status["reasons"][0]["reason"]) == (1, "placement")
    cluster.gone(pod("x"))
    cluster.decide()
    assert not follower.held_back


def test_a_pod_that_fairway_did_not_make_does_not_choose_its_turn() -> None:
    asked = {
        annotation.QUEUE: "red",
        annotation.USER: "ann",
        annotation.PRIORITY: "1000",
        annotation.SUBMITTED: "1.0",
        annotation.TIME_LIMIT: "1.0",
        annotation.GANG: "g",
        annotation.PARTS: '{"worker": {"size": 1, "least": 1, "most": 1}}',
    }
    found = {}
    for name, labels in (("stranger", {}), ("half", {annotation.MANAGED_BY: annotation.MANAGER}), ("ours", OURS)):
        cluster = Cluster(node("a"))
        one = pod(name, labels=labels, annotations=asked, priority=5)
        member = gang.member_of(one, None)
        request = gang.request_of(gang.key_of_gang(one), [member], gang.PodShapeCache(cluster.follower.ground))
        assert request is not None
        found[name] = (request.queue, request.user, request.priority, request.submitted, request.limit)
    made = 1767225600.0
    assert found["stranger"] == found["half"] == ("default", "", 5, made, None)
    assert found["ours"] == ("red", "ann", 1000, 1.0, 1.0)
