"""Conformance suite of stores for queues and the scheduler's memory. Part of `store_conformance`."""

from __future__ import annotations

from dataclasses import replace

from fairway.app.port.port import ChangeSet, Store
from fairway.state.event import RunEvent
from fairway.state.phase import JobPhase
from fairway.state.queue import Queue
from fairway.testing.builder.job_builder import a_job


class QueueConformance:
    """The part of the suite about queues."""

    def test_queues_come_back_as_they_went_in_in_order_of_name(self, store: Store) -> None:
        rich = Queue(
            "research",
            weight=2.5,
            quota={"cpu": 64_000, "memory": 1 << 20, "gpu:A100": 8000, "rdma/hca": 2},
            per_user={"gpu": 8000, "runs": 3},
            timeout=259_200.0,
            priority=-10,
            borrow=False,
            time_slice=0.5,
            members=("group:nlp", "user:\u00e9va"),
            default_timeout=60.0,
            default_priority=-20,
            labels={"team": "nlp"},
            annotations={"note": "\u4f60"},
        )
        event = RunEvent(1.0, "queue:research", "QueueCreated", "by ana")
        store.commit(ChangeSet(events=(event,), queues=(rich, Queue("alpha"))))
        assert store.queues() == [Queue("alpha"), rich]
        assert store.events_of("queue:research") == [event]
        later = replace(rich, weight=1.0, quota={})
        store.commit(ChangeSet(queues=(later,)))
        assert store.queues() == [Queue("alpha"), later]

    def test_a_deleted_queue_is_gone_and_its_events_stay(self, store: Store) -> None:
        store.commit(ChangeSet(queues=(Queue("a"), Queue("b")), events=(RunEvent(1.0, "queue:a", "QueueCreated", ""),)))
        store.commit(ChangeSet(queues_deleted=("a", "nothing"), events=(RunEvent(2.0, "queue:a", "QueueDeleted", ""),)))
        assert store.queues() == [Queue("b")]
        assert [event.reason for event in store.events_of("queue:a")] == ["QueueCreated", "QueueDeleted"]

    def test_the_schedulers_memory_is_the_last_one_committed(self, store: Store) -> None:
        job = a_job()
        store.commit(ChangeSet(jobs=(job,), memory=b"\x00one\xff"))
        assert store.memory() == b"\x00one\xff"
        store.commit(ChangeSet(jobs=(replace(job, phase=JobPhase.RUNNING),)))
        assert store.memory() == b"\x00one\xff"
        store.commit(ChangeSet(memory=b""))
        assert store.memory() == b""
