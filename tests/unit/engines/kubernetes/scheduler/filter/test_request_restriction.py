"""Placement that depends on other pods and on volumes, as the core receives it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from scheduling_world import Cluster, gang_pod, node, pod

from fairway.engines.kubernetes.objects import CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def zones(**by_name: str) -> list[Any]:
    return [node(name, labels={ZONE: zone}) for name, zone in by_name.items()]


def beside(key: str, *, app: str = "x", anti: bool = False, **more: Any) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}
    return {"affinity": {"podAntiAffinity" if anti else "podAffinity": {REQUIRED: [term]}}}


def spread(key: str, **more: Any) -> dict[str, Any]:
    one = {"topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "x"}}, "maxSkew": 1}
    return {"topologySpreadConstraints": [one | more]}


def settle(cluster: Cluster) -> dict[str, str]:
    """Take decisions until one binds nothing."""
    found: dict[str, str] = {}
    while placed := cluster.decide():
        found |= placed
    return found


X = {"app": "x"}


def test_pods_that_want_to_lie_apart_do_and_the_last_says_why_it_waits() -> None:
    cluster = Cluster(*zones(a="1", b="2", c="2"))
    cluster.pod(*(pod(f"p{number}", labels=X, **beside(ZONE, anti=True)) for number in range(3)))
    placed = settle(cluster)
    assert sorted("2" if place in "bc" else "1" for place in placed.values()) == ["1", "2"]
    (left,) = {"p0", "p1", "p2"} - set(placed)
    assert "no node fits: the anti-affinity of pods there excludes it (3 nodes)" in cluster.why(f"pod/{left}")


def test_what_lies_there_keeps_others_away_who_say_nothing_themselves() -> None:
    cluster = Cluster(*zones(a="1", b="2"))
    cluster.pod(pod("theirs", scheduler="default-scheduler", nodeName="a", **beside(ZONE, anti=True)))
    cluster.pod(pod("p", labels=X), pod("q"))
    assert cluster.decide()["p"] == "b"
    cluster.pod(pod("third", labels=X, **{"nodeSelector": {HOST: "a"}}))
    assert cluster.decide() == {}
    cluster.gone(pod("theirs"))
    assert cluster.decide() == {"third": "a"}


def test_the_first_of_those_that_lie_together_lies_anywhere_and_the_others_beside_it() -> None:
    cluster = Cluster(*zones(a="1", b="2", c="2"))
    cluster.pod(*(pod(f"p{number}", cpu="3", labels=X, **beside(ZONE)) for number in range(2)))
    assert {place in "bc" for place in settle(cluster).values()} in ({True}, {False})
    assert cluster.decide() == {}
    alone = Cluster(*zones(a="1"))
    alone.pod(pod("p", labels={"app": "y"}, **beside(ZONE)))
    assert alone.decide() == {}
    assert "affinity requires are elsewhere (1 node)" in alone.why("pod/p")


def test_other_namespaces_count_where_they_are_named() -> None:
    cluster = Cluster(*zones(a="1", b="2"))
    elsewhere = msgspec.structs.replace(pod("q", labels=X, nodeName="a", scheduler="default-scheduler"))
    moved = msgspec.structs.replace(elsewhere, metadata=msgspec.structs.replace(elsewhere.metadata, namespace="other"))
    cluster.pod(moved)
    cluster.pod(pod("own", labels=X, **beside(ZONE, anti=True), nodeSelector={HOST: "a"}))
    assert cluster.decide() == {"own": "a"}
    cluster.follower.narrowing.company.space("other", {"team": "red"})
    rule = {"namespaceSelector": {"matchLabels": {"team": "red"}}}
    cluster.pod(pod("far", **beside(ZONE, anti=True, **rule)))
    assert cluster.decide() == {"far": "b"}


@pytest.mark.parametrize(("rule", "places"), [({}, "aab"), ({"maxSkew": 2}, "aaab"), ({"minDomains": 3}, "ab")])
def test_pods_lie_evenly(rule: dict[str, Any], places: str) -> None:
    cluster = Cluster(*zones(a="1", b="2"))
    cluster.node(node("b", cpu="1", labels={ZONE: "2"}))
    cluster.pod(*(pod(f"p{number}", labels=X, **spread(ZONE, **rule)) for number in range(4)))
    # Node b has room for one pod only, so node a may have as many more as the rule allows.
    assert "".join(sorted(settle(cluster).values())) == places


def test_taints_count_for_evenness_where_the_rule_says_so() -> None:
    tainted = node("b", labels={ZONE: "2"}, taints=[{"key": "k", "effect": "NoSchedule"}])
    for policy, expected in (("Ignore", 1), ("Honor", 3)):
        cluster = Cluster(*zones(a="1"), tainted)
        cluster.pod(*(pod(f"p{number}", labels=X, **spread(ZONE, nodeTaintsPolicy=policy)) for number in range(3)))
        assert len(settle(cluster)) == expected


def test_a_gang_whose_pods_must_lie_apart_starts_whole_or_not_at_all() -> None:
    cluster = Cluster(*zones(a="1", b="2", c="2"))
    ask = beside(ZONE, app="gang", anti=True)
    cluster.pod(*(_labelled(gang_pod(index, 3, **ask)) for index in range(3)))
    assert cluster.decide() == {}
    assert "its 3 pods cannot be placed together" in cluster.why("mnist-1")
    cluster.node(node("d", labels={ZONE: "3"}))
    placed = cluster.decide()
    assert len(placed) == 3
    assert len({"2" if place in "bc" else place for place in placed.values()}) == 3


def test_a_gang_that_lies_together_finds_the_zone_that_has_room_for_all() -> None:
    cluster = Cluster(*zones(a="1", b="2", c="2"))
    cluster.pod(*(_labelled(gang_pod(index, 3, cpu="2", **beside(ZONE, app="gang"))) for index in range(3)))
    assert set(cluster.decide().values()) == {"b", "c"}


def _labelled(one: Any) -> Any:
    metadata = msgspec.structs.replace(one.metadata, labels=one.metadata.labels | {"app": "gang"})
    return msgspec.structs.replace(one, metadata=metadata)


# Volumes


def thing(kind: Any, name: str, namespace: str = "", **more: Any) -> Any:
    head = {"name": name, "namespace": namespace, "uid": f"uid-{name}", **more.pop("head", {})}
    return msgspec.convert({"metadata": head, **more}, kind)


def mounting(claim: str = "data", **more: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}], **more}


def in_zone(zone: str) -> dict[str, Any]:
    rules = [{"key": ZONE, "operator": "In", "values": [zone]}]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": rules}]}}}


def test_a_bound_claim_ties_the_pod_to_its_volume() -> None:
    cluster = Cluster(*zones(a="1", b="2"))
    storage = cluster.follower.narrowing.storage
    cluster.pod(pod("p", **mounting()))
    assert cluster.decide() == {}
    assert "its volume claim data does not exist yet" in cluster.why("pod/p")
    storage.see(
        storage.claims,
        "team/data",
        thing(PersistentVolumeClaim, "data", "team", spec={"volumeName": "v1"}, status={"phase": "Bound"}),
    )
    storage.see(storage.volumes, "v1", thing(PersistentVolume, "v1", spec=in_zone("2")))
    assert cluster.decide() == {"p": "b"}


def test_a_claim_that_waits_for_its_consumer_is_told_the_node_first() -> None:
    cluster = Cluster(*zones(a="1", b="2"))
    storage = cluster.follower.narrowing.storage
    topology = [{"matchLabelExpressions": [{"key": ZONE, "values": ["2"]}]}]
    later = {"provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": topology}
    storage.see(storage.classes, "later", thing(StorageClass, "later", **later))
    storage.see(storage.claims, "team/data", thing(PersistentVolumeClaim, "data", "team", spec={"storageClassName": "later"}))
    cluster.pod(pod("p", **mounting()))
    cluster.now += 1
    (bind,) = cluster.follower.decide(cluster.now).binds
    (claim,) = bind.claims
    assert (claim.node, claim.volume, claim.claim.metadata.name) == ("b", None, "data")


def test_a_volume_that_is_there_is_promised_once() -> None:
    cluster = Cluster(*zones(a="1", b="2"))
    storage = cluster.follower.narrowing.storage
    by_hand = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    storage.see(storage.classes, "local", thing(StorageClass, "local", **by_hand))
    spec = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, **in_zone("2")}
    storage.see(storage.volumes, "v1", thing(PersistentVolume, "v1", spec=spec, status={"phase": "Available"}))
    asked = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for name in ("one", "two"):
        storage.see(storage.claims, f"team/{name}", thing(PersistentVolumeClaim, name, "team", spec=asked))
        cluster.pod(pod(name, **mounting(name)))
    assert list(settle(cluster).values()) == ["b"]


def test_a_claim_for_one_pod_is_given_to_one_and_ephemeral_claims_are_the_pods_own() -> None:
    cluster = Cluster(*zones(a="1"))
    storage = cluster.follower.narrowing.storage
    storage.see(storage.volumes, "v1", thing(PersistentVolume, "v1"))
    alone = {"volumeName": "v1", "accessModes": ["ReadWriteOncePod"]}
    storage.see(storage.claims, "team/data", thing(PersistentVolumeClaim, "data", "team", spec=alone, status={"phase": "Bound"}))
    cluster.pod(pod("p", **mounting()), pod("q", **mounting()))
    assert list(settle(cluster)) == ["p"]
    assert "is for one pod at a time, and p uses it" in cluster.why("pod/q")
    cluster.pod(pod("own", volumes=[{"name": "v", "ephemeral": {}}]))
    storage.see(storage.claims, "team/own-v", thing(PersistentVolumeClaim, "own-v", "team", spec={"volumeName": "v1"}))
    assert cluster.decide() == {}
    assert "belongs to another owner" in cluster.why("pod/own")
    mine = {"ownerReferences": [{"uid": "uid-own", "kind": "Pod", "name": "own"}]}
    storage.see(storage.claims, "team/own-v", thing(PersistentVolumeClaim, "own-v", "team", head=mine, spec={"volumeName": "v1"}))
    assert cluster.decide() == {"own": "a"}


def test_a_node_takes_so_many_volumes_of_a_driver() -> None:
    cluster = Cluster(*zones(a="1"))
    storage = cluster.follower.narrowing.storage
    limit = {"drivers": [{"name": "csi.example.com", "allocatable": {"count": 1}}]}
    storage.see(storage.drivers, "a", thing(CsiNode, "a", spec=limit))
    for name in ("one", "two"):
        source = {"csi": {"driver": "csi.example.com", "volumeHandle": name}}
        storage.see(storage.volumes, f"v-{name}", thing(PersistentVolume, f"v-{name}", spec=source))
        bound = {"spec": {"volumeName": f"v-{name}"}, "status": {"phase": "Bound"}}
        storage.see(storage.claims, f"team/{name}", thing(PersistentVolumeClaim, name, "team", **bound))
        cluster.pod(pod(name, **mounting(name)), pod(f"{name}-too", **mounting(name)))
    assert sorted(settle(cluster)) in (["one", "one-too"], ["two", "two-too"])
