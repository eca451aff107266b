"""From a queue document to the numbers used by a scheduler, and its allowed users."""

from __future__ import annotations

import pytest

from fairway.spec.queue import JobQueue
from fairway.spec.text.document import read_documents
from fairway.state.queue import Queue, admits, by_name, queue_of


def queue(text: str) -> Queue:
    (document,) = read_documents(f"kind: JobQueue\nname: research\n{text}\n")
    assert isinstance(document, JobQueue)
    return queue_of(document)


def test_amounts_become_whole_numbers() -> None:
    found = queue(
        "quota: {cpu: 1.5, memory: 1Gi, gpu: 8, gpu_types: {A100: 0.25}, rdma/hca: 2}\n"
        "limits: {per_user: {gpu: H100:2, runs: 3, memory: 1500000}}\n"
        "weight: 500m"
    )
    assert found.quota == {"cpu": 1500, "memory": 1024, "gpu": 8000, "gpu:A100": 250, "rdma/hca": 2}
    assert found.per_user == {"gpu:H100": 2000, "runs": 3, "memory": 1}
    assert found.weight == 0.5


def test_an_empty_document_is_as_default_is() -> None:
    assert queue("") == Queue("research")


@pytest.mark.parametrize(
    ("text", "timeout", "default_timeout", "priority", "default_priority"),
    [
        ("", None, None, None, 0),
        ("limits: {timeout: 1h, priority: 5}", 3600.0, 3600.0, 5, 0),
        ("limits: {timeout: 1h, priority: -5}", 3600.0, 3600.0, -5, -5),
        ("limits: {timeout: 1h}\ndefaults: {timeout: 1m, priority: 3}", 3600.0, 60.0, None, 3),
    ],
)
def test_limits_and_defaults(
    text: str, timeout: float | None, default_timeout: float | None, priority: int | None, default_priority: int
) -> None:
    found = queue(text)
    assert (found.timeout, found.default_timeout) == (timeout, default_timeout)
    assert (found.priority, found.default_priority) == (priority, default_priority)


def test_time_slices() -> None:
    assert queue("time_slice: never").time_slice is None
    assert queue("time_slice: 30m").time_slice == 1800.0


def test_default_is_among_them_whatever_was_kept() -> None:
    assert by_name([]) == {"default": Queue("default")}
    changed = Queue("default", weight=3.0)
    assert list(by_name([Queue("z"), changed, Queue("a")])) == ["a", "default", "z"]
    assert by_name([changed])["default"] is changed


@pytest.mark.parametrize(
    ("members", "user", "groups", "may"),
    [
        (("*",), "", (), True),
        (("user:ann",), "ann", (), True),
        (("user:ann",), "bob", ("ann",), False),
        (("group:nlp",), "bob", ("staff", "nlp"), True),
        (("group:nlp",), "nlp", (), False),
        (("user:",), "", (), False),
    ],
)
def test_who_may(members: tuple[str, ...], user: str, groups: tuple[str, ...], may: bool) -> None:
    assert admits(Queue("q", members=members), user, groups) is may
