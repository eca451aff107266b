"""Users and groups: groups come from the API server, and only for the user of the current request."""

from __future__ import annotations

import contextvars

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.identity.caller import CALLER, ClusterCaller, ClusterGroups, named_by, noted

ANN = ClusterCaller("ann", ("nlp", "system:authenticated", "vision"))


def test_groups_are_those_of_whoever_asks_and_of_nobody_else() -> None:
    people = ClusterGroups()

    def asking() -> None:
        CALLER.set(ANN)
        assert people.groups_of("ann") == ANN.groups
        assert people.groups_of("root") == ()

    contextvars.copy_context().run(asking)
    assert people.groups_of("ann") == ()


def test_an_object_notes_the_groups_that_queues_name_and_no_others() -> None:
    written = noted(ANN, {"group:nlp", "group:robots", "user:ann", "*"})
    assert written == {annotation.USER: "ann", annotation.GROUPS: '["nlp"]'}
    assert named_by(written) == ClusterCaller("ann", ("nlp",))
    assert noted(ANN, {"*"}) == {annotation.USER: "ann"}


def test_who_is_not_named_is_nobody() -> None:
    assert named_by({}) == ClusterCaller("")
    assert named_by({annotation.GROUPS: "no json"}) == ClusterCaller("")
    assert named_by({annotation.USER: "ann", annotation.GROUPS: '{"nlp": 1}'}) == ClusterCaller("ann")
