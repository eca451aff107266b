"""The core follows a cluster: pods and nodes in, bindings out, without an API server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from scheduling_world import Cluster, gang_pod, node, pod

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.scheduler.pod_resource import host_ports, need_of
from fairway.state.job import JobKey


def test_a_pod_of_ours_gets_a_place_and_one_of_others_does_not() -> None:
    cluster = Cluster(node("a"))
    cluster.pod(pod("x"), pod("y", scheduler="default-scheduler"))
    assert cluster.decide() == {"x": "a"}
    assert cluster.decide() == {}


def test_what_was_decided_is_taken_until_it_is_seen_and_after() -> None:
    cluster = Cluster(node("a", cpu="1"))
    cluster.pod(pod("x"))
    assert cluster.decide() == {"x": "a"}
    cluster.pod(pod("y"))
    assert cluster.decide() == {}
    cluster.pod(pod("x", nodeName="a", phase="Running"))
    assert cluster.decide() == {}
    cluster.pod(pod("x", nodeName="a", phase="Succeeded"))
    assert cluster.decide() == {"y": "a"}


def test_a_binding_that_was_given_up_frees_the_place_and_is_tried_again() -> None:
    cluster = Cluster(node("a", cpu="1"))
    cluster.pod(pod("x"))
    cluster.decide()
    cluster.follower.failed([pod("x")])
    assert cluster.decide() == {"x": "a"}


def test_a_gang_waits_for_its_last_pod_and_starts_whole() -> None:
    cluster = Cluster(node("a", cpu="2"), node("b", cpu="2"))
    cluster.pod(gang_pod(0, 3), gang_pod(1, 3))
    assert cluster.decide() == {}
    cluster.pod(gang_pod(2, 3))
    assert set(cluster.decide()) == {f"mnist-1-worker-{index}-r0" for index in range(3)}


def test_an_elastic_gang_grows_again_and_not_because_some_of_it_is_done() -> None:
    def member(index: int, size: int, phase: str) -> Pod:
        mark = annotation.GangAnnotation("mnist-1.a0", {"worker": annotation.RoleAnnotation(size, 1, 3)}, saved=1001.0)
        labels = {annotation.RUN: "mnist-1", annotation.ROLE: "worker", annotation.INDEX: str(index), annotation.ATTEMPT: "0"}
        placed = {"nodeName": "a", "phase": phase}
        return pod(f"mnist-1-worker-{index}-r0", labels=labels, annotations=annotation.write_gang(mark), **placed)

    shrunk, ending = Cluster(node("a")), Cluster(node("a"))
    shrunk.pod(member(0, 2, "Running"), member(1, 2, "Running"))
    ending.pod(member(0, 3, "Running"), member(1, 3, "Running"), member(2, 3, "Running"))
    for cluster in (shrunk, ending):
        cluster.decide()
        cluster.now += 600
    ending.pod(member(2, 3, "Succeeded"))
    assert [room.eviction.sizes for room in shrunk.follower.decide(shrunk.now).rooms] == [(("worker", 3),)]
    assert ending.follower.decide(ending.now).rooms == ()


def test_a_gang_that_does_not_fit_whole_gets_nothing_and_says_why() -> None:
    cluster = Cluster(node("a", cpu="2"))
    cluster.pod(*(gang_pod(index, 3) for index in range(3)))
    assert cluster.decide() == {}
    assert "which start together (2 of 3 would find a place); 2 of 2 are free" in cluster.why("mnist-1")


def test_a_gang_that_stays_half_bound_is_taken_back_and_one_whose_pod_starts_again_is_not() -> None:
    """A new scheduler finds a gang that another left half bound: it places the rest if there is room, else it does not wait."""
    cluster = Cluster(node("a", cpu="2"))
    cluster.pod(gang_pod(0, 2, nodeName="a"), gang_pod(1, 2))
    assert cluster.decide() == {"mnist-1-worker-1-r0": "a"}
    full = Cluster(node("a", cpu="1"))
    full.pod(gang_pod(0, 2, nodeName="a"), gang_pod(1, 2))
    outcome = full.follower.decide(1000.0)
    assert (outcome.halves, outcome.wake_at) == ((), 1030.0)
    ((half,),) = full.follower.decide(1030.0).halves
    assert half.metadata.name == "mnist-1-worker-0-r0"
    again = Cluster(node("a", cpu="1"))
    restarted = gang_pod(1, 2)
    restarted.metadata.labels[annotation.ATTEMPT] = "1"
    again.pod(gang_pod(0, 2, nodeName="a"), restarted)
    again.follower.decide(1000.0)
    assert again.follower.decide(1030.0).halves == ()


def test_a_rest_whose_binding_is_refused_again_and_again_does_not_make_half_a_gang_younger() -> None:
    cluster = Cluster(node("a", cpu="2"))
    cluster.pod(gang_pod(0, 2, nodeName="a"), gang_pod(1, 2))
    for second in range(30):
        (bind,) = cluster.follower.decide(1000.0 + second).binds
        cluster.follower.failed([pod for pod, _ in bind.pods])
    assert len(cluster.follower.decide(1030.0).halves) == 1


def test_apart_and_together_are_kept() -> None:
    cluster = Cluster(node("a", cpu="4"), node("b", cpu="4"))
    cluster.pod(*(gang_pod(index, 2, wish={"apart": True}) for index in range(2)))
    assert sorted(cluster.decide().values()) == ["a", "b"]


def test_what_pods_of_other_schedulers_hold_is_not_there_to_give() -> None:
    cluster = Cluster(node("a", cpu="2"))
    cluster.pod(pod("theirs", cpu="2", scheduler="default-scheduler", nodeName="a", phase="Running"))
    cluster.pod(pod("x"))
    assert cluster.decide() == {}
    cluster.gone(pod("theirs", cpu="2", scheduler="default-scheduler", nodeName="a"))
    assert cluster.decide() == {"x": "a"}


def test_a_scheduler_that_begins_knows_who_sits_where() -> None:
    cluster = Cluster(node("a", cpu="1"))
    cluster.pod(pod("x", nodeName="a", phase="Running"), pod("y"))
    assert cluster.decide() == {}


@pytest.mark.parametrize(
    ("wish", "place"),
    [
        ({"nodeSelector": {"zone": "east"}}, "b"),
        ({"tolerations": [{"key": "gpu", "operator": "Exists"}], "nodeSelector": {"kind": "gpu"}}, "c"),
        ({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"kind": "gpu"}}, "c"),
        ({"tolerations": [{"key": "gpu", "value": "no"}], "nodeSelector": {"kind": "gpu"}}, None),
        ({"tolerations": [{"key": "gpu", "value": "yes", "effect": "NoExecute"}], "nodeSelector": {"kind": "gpu"}}, None),
        ({"nodeSelector": {"kind": "gpu"}}, None),
        ({"affinity": ("zone", "In", ["east", "west"])}, "b"),
        ({"affinity": ("zone", "NotIn", ["east"])}, "a"),
        ({"affinity": ("zone", "Exists", [])}, "b"),
        ({"affinity": ("zone", "DoesNotExist", [])}, "a"),
        ({"affinity": ("size", "Gt", ["5"])}, "b"),
        ({"affinity": ("size", "Lt", ["5"])}, "a"),
        ({"affinity": ("zone", "In", ["nowhere"])}, None),
    ],
)
def test_selectors_affinity_and_taints_are_honoured(wish: dict[str, Any], place: str | None) -> None:
    a = node("a", labels={"size": "1"})
    b = node("b", labels={"zone": "east", "size": "10"})
    c = node(
        "c", labels={"kind": "gpu", "size": "5", "zone": "gpu"}, taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    )
    given = dict(wish)
    if "affinity" in given:
        key, operator, values = given["affinity"]
        terms = [{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        given["affinity"] = {"nodeAffinity": required}
    cluster = Cluster(a, b, c)
    cluster.pod(pod("x", **given))
    assert cluster.decide() == ({"x": place} if place else {})


def test_a_node_that_is_cordoned_not_ready_or_full_gets_nobody() -> None:
    cluster = Cluster(node("a", unschedulable=True), node("b", ready="False"), node("c", pods="1"))
    cluster.pod(pod("theirs", scheduler="default-scheduler", nodeName="c", phase="Running"), pod("x"))
    assert cluster.decide() == {}
    cluster.node(node("a"))
    assert cluster.decide() == {"x": "a"}


def test_labels_that_come_later_count() -> None:
    cluster = Cluster(node("a"))
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    cluster.pod(pod("x", affinity={"nodeAffinity": required}))
    assert cluster.decide() == {}
    cluster.node(node("b"))
    assert cluster.decide() == {"x": "b"}


def test_ports_of_a_node_are_given_once() -> None:
    cluster = Cluster(node("a"), node("b"))
    ports = [{"containerPort": 80, "hostPort": 80}]
    cluster.pod(*(pod(name, ports=ports) for name in ("x", "y", "z")))
    placed = cluster.decide()
    assert sorted(placed.values()) == ["a", "b"]


def test_devices_of_others_are_counted_by_name() -> None:
    cluster = Cluster(node("a", other={"nvidia.com/gpu": "2"}))
    cluster.pod(*(pod(name, requests={"nvidia.com/gpu": "1"}) for name in ("x", "y", "z")))
    assert len(cluster.decide()) == 2


def test_a_gated_pod_is_left_alone_until_its_gate_is_gone() -> None:
    cluster = Cluster(node("a"))
    cluster.pod(pod("x", schedulingGates=[{"name": "quota"}]))
    assert cluster.decide() == {}
    cluster.pod(pod("x"))
    assert cluster.decide() == {"x": "a"}


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"resourceClaims": [{"name": "x"}]}, "resource claims"),
        ({"tolerations": [{"key": "size", "operator": "Gt", "value": "5"}]}, "comparing numbers"),
    ],
)
def test_what_is_not_supported_is_refused_loudly(wish: dict[str, Any], words: str) -> None:
    cluster = Cluster(node("a"))
    cluster.pod(pod("x", **wish))
    assert cluster.decide() == {}
    assert words in cluster.why("pod/x")


def test_marks_that_are_none_are_said_and_keep_nobody_else_waiting() -> None:
    cluster = Cluster(node("a"))
    cluster.pod(pod("bad", annotations={annotation.GANG: "g", annotation.PARTS: "{"}), pod("x"))
    assert cluster.decide() == {"x": "a"}
    assert "does not describe a gang" in cluster.why("g")


def test_the_more_urgent_makes_room_and_the_operator_is_told_whom_to_ask() -> None:
    cluster = Cluster(node("a", cpu="1"))
    cluster.pod(pod("low", nodeName="a", phase="Running"))
    cluster.decide()
    cluster.pod(pod("high", priority=1000))
    cluster.now += 600
    outcome = cluster.follower.decide(cluster.now)
    (room,) = outcome.rooms
    assert [one.metadata.name for one in room.pods] == ["low"]
    assert room.eviction.to_whom == JobKey("team", "pod/high")


def test_a_gang_that_was_asked_to_leave_is_not_asked_again_before_its_mark_is_seen() -> None:
    cluster = Cluster(node("a", cpu="1"))
    low = pod("low", nodeName="a", phase="Running")
    cluster.pod(low)
    cluster.decide()
    cluster.pod(pod("high", priority=1000))
    cluster.now += 600
    assert cluster.follower.decide(cluster.now).rooms
    # The pod changes for another reason, in a state without the mark of the eviction.
    cluster.pod(pod("low", nodeName="a", phase="Running", labels={"new": "yes"}))
    cluster.now += 1
    assert not cluster.follower.decide(cluster.now).rooms
    assert cluster.follower.scheduler.ledger.running[JobKey("team", "pod/low")].leaving
    # A pod that could not be evicted stays, and may be evicted later.
    cluster.follower.stays([low])
    cluster.now += 600
    assert cluster.follower.decide(cluster.now).rooms


def test_a_heartbeat_changes_nothing() -> None:
    cluster = Cluster(node("a"))
    cluster.decide()
    cluster.node(node("a"))
    assert cluster.follower.ground.changed == set()


def test_what_a_pod_takes_is_what_the_api_server_says() -> None:
    def container(cpu: str, **more: Any) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    plain = msgspec.convert(
        {
            "spec": {
                "containers": [container("1"), container("500m"), {"name": "l", "resources": {"limits": {"cpu": "2"}}}],
                "initContainers": [container("1"), container("100m", restartPolicy="Always"), container("4")],
                "overhead": {"cpu": "10m"},
            }
        },
        Pod,
    )
    # The last init container together with the sidecar needs more than all containers at once.
    assert need_of(plain).cpu == 4110
    assert host_ports(plain) == ()


def test_a_binding_that_is_seen_is_no_news_to_the_core() -> None:
    cluster = Cluster(node("a"))
    cluster.pod(pod("x"))
    cluster.decide()
    cluster.decide()
    ledger = cluster.follower.scheduler.ledger
    known = ledger.running[JobKey("team", "pod/x")]
    cluster.pod(pod("x", nodeName="a"))
    cluster.decide()
    assert ledger.running[JobKey("team", "pod/x")] is known
    assert known.since == 1001.0


def test_a_pod_that_asks_for_more_than_before_is_measured_anew() -> None:
    cluster = Cluster(node("a", cpu="1"))
    cluster.pod(pod("x", cpu="2"))
    assert cluster.decide() == {}
    cluster.pod(pod("x", cpu="500m"))
    assert cluster.decide() == {"x": "a"}


def attempt(index: int, size: int, number: int, **more: Any) -> Pod:
    """Return a pod of the gang's attempt with that number."""
    one = gang_pod(index, size, **more)
    labels = {**one.metadata.labels, annotation.ATTEMPT: str(number)}
    noted = {**one.metadata.annotations, annotation.GANG: f"mnist-1.a{number}"}
    name = f"mnist-1-worker-{index}-r{number}"
    metadata = msgspec.structs.replace(one.metadata, name=name, uid=f"uid-{name}", labels=labels, annotations=noted)
    return msgspec.structs.replace(one, metadata=metadata)


def test_a_pod_that_is_deleted_before_it_was_bound_gets_no_place_and_holds_none() -> None:
    """Its finalizer keeps it for a while. Binding it would be refused, and the refusal would roll back its gang."""
    cluster = Cluster(node("a", cpu="4"))
    cluster.pod(attempt(0, 2, 0, deleted="2026-01-01T00:01:00Z"), attempt(0, 2, 1), attempt(1, 2, 1))
    assert set(cluster.decide()) == {"mnist-1-worker-0-r1", "mnist-1-worker-1-r1"}
    assumed = Cluster(node("a", cpu="1"))
    assumed.pod(pod("x"))
    assert assumed.decide() == {"x": "a"}
    assumed.pod(pod("x", deleted="2026-01-01T00:01:00Z"), pod("y"))
    assert assumed.decide() == {"y": "a"}


def test_a_gang_that_begins_again_at_the_same_places_holds_them_once_when_the_old_pods_are_gone() -> None:
    """Regression: a core was lost for ever after a gang was bound in part, rolled back and recreated, so x or y did not fit."""
    cluster = Cluster(node("a", cpu="4"))
    first, second = attempt(0, 2, 0), attempt(1, 2, 0)
    cluster.pod(first, second)
    assert len(cluster.decide()) == 2
    cluster.gone(first)
    cluster.pod(attempt(0, 2, 1), attempt(1, 2, 1))
    assert len(cluster.decide()) == 2
    assert cluster.decide() == {}
    cluster.gone(second)
    assert cluster.decide() == {}
    cluster.pod(attempt(0, 2, 1, nodeName="a"), attempt(1, 2, 1, nodeName="a"))
    cluster.pod(pod("x"), pod("y"))
    assert cluster.decide() == {"x": "a", "y": "a"}


def test_a_gang_is_whole_when_all_pods_of_this_very_attempt_are_there() -> None:
    """Pods of the previous attempt, which are being deleted, do not count."""
    cluster = Cluster(node("a", cpu="8"))
    going = {"nodeName": "a", "deleted": "2026-01-01T00:01:00Z"}
    cluster.pod(attempt(0, 2, 0, **going), attempt(1, 2, 0, **going), attempt(0, 2, 1))
    assert cluster.decide() == {}
    cluster.pod(attempt(1, 2, 1))
    assert set(cluster.decide()) == {"mnist-1-worker-0-r1", "mnist-1-worker-1-r1"}
    late = Cluster(node("a", cpu="8"))
    # Created by an operator that crashed before recording it, and visible after the next operator has begun another attempt.
    late.pod(attempt(0, 2, 0), attempt(0, 2, 1), attempt(1, 2, 1))
    assert set(late.decide()) == {"mnist-1-worker-0-r1", "mnist-1-worker-1-r1"}
