"""Settings that the user leaves open are chosen by what the cluster has, and reported."""

from __future__ import annotations

import pytest

from fairway.engines.kubernetes.cluster_component import found
from fairway.engines.kubernetes.install.default_setting import choose
from fairway.engines.kubernetes.install.discovering import ClusterFindings
from fairway.engines.kubernetes.operator.installation import InstallationSettings
from fairway.errors import RefusedError

ALONE = InstallationSettings(image="fairway:1")
KUEUE = ClusterFindings(found({"apps", "kueue.x-k8s.io"}))


def test_alone_on_a_cluster_fairway_places() -> None:
    chosen, words = choose(ALONE, (), ClusterFindings())
    assert (chosen, words) == (ALONE, [])


def test_beside_somebody_who_queues_it_stays_theirs() -> None:
    chosen, words = choose(ALONE, (), KUEUE)
    assert (chosen.scheduler, chosen.queueing) == ("", "kueue")
    assert "kueue is installed: it keeps queueing and placing pods (--scheduler fairway makes Fairway do both)" in words


def test_what_was_said_stands() -> None:
    chosen, words = choose(ALONE, {"scheduler": "fairway"}, KUEUE)
    assert (chosen.scheduler, chosen.queueing) == ("fairway", "")
    assert "Fairway still queues and places its own pods" in words[0]
    theirs = InstallationSettings(image="fairway:1", scheduler="")
    assert choose(theirs, {"scheduler": ""}, KUEUE)[0].queueing == "kueue"
    assert choose(theirs, {"scheduler": "", "queueing": ""}, KUEUE)[0].queueing == ""


def test_prometheus_is_told_of_us_where_it_is() -> None:
    chosen, words = choose(ALONE, (), ClusterFindings(found({"monitoring.coreos.com"})))
    assert chosen.monitoring
    assert "a Prometheus operator is installed: a PodMonitor makes it scrape Fairway" in words
    assert not choose(ALONE, {"monitoring": False}, ClusterFindings(found({"monitoring.coreos.com"})))[0].monitoring


def test_a_record_without_a_volume_is_refused_with_both_ways_out() -> None:
    with pytest.raises(RefusedError, match="no default storage class") as refused:
        choose(ALONE, (), ClusterFindings(makes_volumes=False))
    assert "persistentVolumeClaim" in refused.value.fix
    assert "emptyDir" in refused.value.fix


def test_a_record_that_is_lost_is_said() -> None:
    chosen, words = choose(
        InstallationSettings(image="x", record={"emptyDir": {}}), {"record"}, ClusterFindings(makes_volumes=False)
    )
    assert chosen.record == {"emptyDir": {}}
    assert words == ["warning: the record is in an emptyDir: history and models are lost with the operator's pod"]


def test_without_a_cluster_nothing_is_decided() -> None:
    assert choose(ALONE, (), None) == (ALONE, [])
