"""Queues as text: the list, a single queue, and the effect of a change."""

from __future__ import annotations

from dataclasses import replace

from fairway.state.queue import Queue, QueueUsage
from fairway.testing.builder.job_builder import a_queue
from fairway.views.queue import difference, queue_text, queue_view, queues_text
from fairway.views.text.table import TextPage

RICH = a_queue(
    weight="2.5",
    members=["group:nlp", "user:ann"],
    quota={"cpu": "64", "memory": "1Ti", "gpu_types": {"A100": "8"}, "other": {"rdma/hca": 2}},
    limits={"per_user": {"gpu": "8", "runs": 3}, "timeout": "72h", "priority": 10},
    time_slice="1h",
    defaults={"priority": -5},
)
STANDING = QueueUsage(
    "research",
    running=3,
    waiting=12,
    used={"gpu": 9500, "gpu:A100": 9500, "cpu": 12000, "memory": 2048},
    dominant="gpu:A100",
    share=0.59375,
    usage=1234.5,
    borrowed={"gpu:A100": 1500},
)


def test_numbers_are_in_the_units_of_people() -> None:
    view = queue_view(RICH, STANDING)
    assert [(resource.resource, resource.used, resource.quota, resource.borrowed) for resource in view.resources] == [
        ("gpu", 9.5, None, 0.0),
        ("gpu:A100", 9.5, 8.0, 1.5),
        ("cpu", 12.0, 64.0, 0.0),
        ("memory", 2048 << 20, 1 << 40, 0.0),
        ("rdma/hca", 0, 2, 0),
    ]
    assert (view.share, view.dominant, view.per_user) == (59.4, "gpu:A100", {"gpu": 8.0, "runs": 3})
    assert (view.timeout, view.default_timeout, view.priority, view.default_priority) == (259200.0, 259200.0, 10, -5)


def test_the_list() -> None:
    views = [queue_view(Queue("default"), QueueUsage("default")), queue_view(RICH, STANDING)]
    title, default, research = queues_text(views).splitlines()
    assert title.split() == ["NAME", "WEIGHT", "RUNNING", "WAITING", "SHARE", "USED", "BORROWED"]
    assert default == "default        1        0        0                  -"
    used = "9.5 gpu, 9.5/8 gpu:A100, 12/64 cpu, 2 GiB/1 TiB memory, 0/2 rdma/hca"
    assert research == f"research     2.5        3       12  59.4% of gpu:A100  {used}  1.5 gpu:A100"
    wide = queues_text(views, TextPage(wide=True)).splitlines()
    assert wide[0].split()[-5:] == ["USAGE", "BORROW", "SLICE", "TIMEOUT", "MEMBERS"]
    assert wide[2].endswith("1234.5  yes     1h     3d       group:nlp user:ann")


def test_one_queue() -> None:
    text = queue_text(queue_view(RICH, STANDING))
    for line in (
        "  members     group:nlp, user:ann",
        "  runs        3 running, 12 waiting",
        "  per user    gpu 8, runs 3",
        "  timeout     at most 3d, 3d by default",
        "  priority    at most 10, -5 by default",
        "  time slice  1h",
        "  gpu:A100    9.5      8       1.5",
    ):
        assert line in text, text
    assert queue_text(queue_view(Queue("default", borrow=False), QueueUsage("default"))) == (
        "default\n"
        "  weight      1\n"
        "  members     *\n"
        "  runs        0 running, 0 waiting\n"
        "  borrow      never exceeds its quota\n"
        "  time slice  never\n"
    )


def test_a_difference_in_a_few_words() -> None:
    assert difference(None, RICH) == difference(RICH, RICH) == ""
    changed = replace(RICH, weight=1.0, quota={"cpu": 64000}, borrow=False, labels={"team": "nlp"})
    assert difference(RICH, changed) == (
        "weight 2.5 -> 1, borrow yes -> no, quota.memory 1 TiB -> none, quota.gpu:A100 8 -> none,"
        " quota.rdma/hca 2 -> none, labels.team none -> nlp"
    )
