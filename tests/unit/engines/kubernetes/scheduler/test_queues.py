"""JobQueue objects: their specification and their status."""

from __future__ import annotations

import msgspec
from scheduling_world import OURS, Cluster, node, pod

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.objects import Custom
from fairway.engines.kubernetes.scheduler import gangs, queues


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
    cluster.pod(*(pod(name, cpu="1500m", labels=OURS, annotations={marks.QUEUE: "red"}) for name in ("x", "y", "z")))
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
    cluster.pod(pod("x", labels=OURS, annotations={marks.QUEUE: "red"}, volumes=mount))
    assert cluster.decide() == {}
    follower = cluster.follower
    (status,) = queues.statuses(follower.scheduler.ledger, follower.holds(cluster.now), follower.held_back).values()
    assert (status["waiting"], status["reasons"][0]["reason"]) == (1, "placement")
    cluster.gone(pod("x"))
    cluster.decide()
    assert not follower.held_back


def test_a_pod_that_fairway_did_not_make_does_not_choose_its_turn() -> None:
    asked = {
        marks.QUEUE: "red",
        marks.USER: "ann",
        marks.PRIORITY: "1000",
        marks.SUBMITTED: "1.0",
        marks.TIME_LIMIT: "1.0",
        marks.GANG: "g",
        marks.PARTS: '{"worker": {"size": 1, "least": 1, "most": 1}}',
    }
    found = {}
    for name, labels in (("stranger", {}), ("half", {marks.MANAGED_BY: marks.MANAGER}), ("ours", OURS)):
        cluster = Cluster(node("a"))
        one = pod(name, labels=labels, annotations=asked, priority=5)
        member = gangs.member_of(one, None)
        request = gangs.request_of(gangs.key_of_gang(one), [member], gangs.Shapes(cluster.follower.ground))
        assert request is not None
        found[name] = (request.queue, request.user, request.priority, request.submitted, request.limit)
    made = 1767225600.0
    assert found["stranger"] == found["half"] == ("default", "", 5, made, None)
    assert found["ours"] == ("red", "ann", 1000, 1.0, 1.0)
