"""Users and groups: groups come from the API server, and only for the user of the current request."""

from __future__ import annotations

import contextvars

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.people import CALLER, Caller, ClusterPeople, named_by, noted

ANN = Caller("ann", ("nlp", "system:authenticated", "vision"))


def test_groups_are_those_of_whoever_asks_and_of_nobody_else() -> None:
    people = ClusterPeople()

    def asking() -> None:
        CALLER.set(ANN)
        assert people.groups_of("ann") == ANN.groups
        assert people.groups_of("root") == ()

    contextvars.copy_context().run(asking)
    assert people.groups_of("ann") == ()


def test_an_object_notes_the_groups_that_queues_name_and_no_others() -> None:
    written = noted(ANN, {"group:nlp", "group:robots", "user:ann", "*"})
    assert written == {marks.USER: "ann", marks.GROUPS: '["nlp"]'}
    assert named_by(written) == Caller("ann", ("nlp",))
    assert noted(ANN, {"*"}) == {marks.USER: "ann"}


def test_who_is_not_named_is_nobody() -> None:
    assert named_by({}) == Caller("")
    assert named_by({marks.GROUPS: "no json"}) == Caller("")
    assert named_by({marks.USER: "ann", marks.GROUPS: '{"nlp": 1}'}) == Caller("ann")
