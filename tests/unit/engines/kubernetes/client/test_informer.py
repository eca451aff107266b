import pytest

from fairway.engines.kubernetes.client.api_resource import PODS
from fairway.engines.kubernetes.client.informer import Informer, by_label, by_owner
from fairway.engines.kubernetes.objects import ObjectMetadata, OwnerReference, Pod


def pod(name, version="1", job=None, owner=""):
    owners = (OwnerReference(kind="TrainingJob", name="j", uid=owner, controller=True),) if owner else ()
    labels = {"job": job} if job else {}
    return Pod(ObjectMetadata(name=name, namespace="t", resource_version=version, labels=labels, owner_references=owners))


@pytest.fixture
def mirror():
    return Informer(None, PODS, indexes={"job": by_label("job"), "owner": by_owner})


def names(things):
    return sorted(thing.metadata.name for thing in things)


def test_only_what_differs_is_told(mirror):
    told = []
    mirror.listen(
        lambda key, was, now: told.append((key, was and was.metadata.resource_version, now and now.metadata.resource_version))
    )
    mirror.reset([pod("a"), pod("b")])
    mirror.reset([pod("a"), pod("b", "2"), pod("c")])
    mirror.reset([pod("c")])
    mirror.put(pod("c", "5"))
    mirror.put(pod("c", "6"), gone=True)
    assert told[:4] == [("t/a", None, "1"), ("t/b", None, "1"), ("t/b", "1", "2"), ("t/c", None, "1")]
    assert sorted(told[4:6]) == [("t/a", "1", None), ("t/b", "2", None)]
    assert told[6:] == [("t/c", "1", "5"), ("t/c", "5", None)]
    assert len(mirror) == 0


def test_indexes_follow(mirror):
    mirror.reset([pod("a", job="x", owner="u1"), pod("b", job="x"), pod("c")])
    assert names(mirror.indexed("job", "x")) == ["a", "b"]
    assert names(mirror.indexed("owner", "u1")) == ["a"]
    mirror.put(pod("a", "2", job="y", owner="u1"))
    mirror.put(pod("b", "2"), gone=True)
    assert names(mirror.indexed("job", "x")) == []
    assert names(mirror.indexed("job", "y")) == ["a"]
    assert names(mirror.indexed("owner", "u1")) == ["a"]
    assert mirror.get("t/a").metadata.resource_version == "2"
    assert (mirror.get("t/b"), names(mirror), sorted(mirror.keys())) == (None, ["a", "c"], ["t/a", "t/c"])


def test_who_listens_late_is_told_of_what_is_there(mirror):
    mirror.reset([pod("a")])
    told = []
    mirror.listen(lambda key, was, now: told.append((key, was, now is not None)))
    assert told == [("t/a", None, True)]


def test_what_goes_without_having_been_seen_does_no_harm(mirror):
    mirror.put(pod("a", job="x"), gone=True)
    assert len(mirror) == 0
    assert not mirror.complete


def test_a_listener_that_fails_keeps_neither_the_copy_nor_the_others_back(mirror):
    told = []

    def fail(key, was, now):
        raise RuntimeError("boom")

    mirror.listen(fail)
    mirror.listen(lambda key, was, now: told.append(key))
    mirror.reset([pod("a"), pod("b")])
    assert told == ["t/a", "t/b"]
    assert names(mirror) == ["a", "b"]
