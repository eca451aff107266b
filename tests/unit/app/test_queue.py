"""Queues over a fake engine and a real store: what they admit, default and refuse, and what survives a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairway.app.application import Application
from fairway.app.port.port import ChangeSet
from fairway.app.submission import Submission
from fairway.errors import ConflictError, DeniedError, NotFoundError, RefusedError
from fairway.spec.job import TrainingJob
from fairway.state.job import JobKey, JobState, SubmissionOrigin
from fairway.state.queue import Queue
from fairway.stores.sqlite.store import SqliteStore
from fairway.testing.builder.job_builder import a_queue
from fairway.testing.fake.fake_engine import FakeEngine, FakeMachine
from fairway.testing.fake.memory_store import FakePeople


class StillClock:
    def now(self) -> float:
        return 1_700_000_000.0


class NoSecrets:
    def names(self) -> list[str]:
        return []


class Keeper:
    """Stores nothing; a test may act while a submission is received."""

    def __init__(self) -> None:
        self.meanwhile: list[Application] = []

    async def receive(self, submission: Submission) -> SubmissionOrigin:
        for app in self.meanwhile:
            await app.queues.delete("research")
        return submission.origin

    async def missing(self, submission: Submission, port: int = 0) -> list[str]:
        return []

    def keep(self, key: JobKey, submission: Submission) -> None:
        pass

    async def fingerprint(self, job: JobState) -> str:
        return ""


PEOPLE = FakePeople(ann=("nlp", "staff"), bob=("staff",))


@asynccontextmanager
async def desk(folder: Path, keeper: Keeper | None = None) -> AsyncIterator[Application]:
    """An application whose loop turns only when the test calls it."""
    store, clock = SqliteStore(folder / "fairway.db"), StillClock()
    engine = FakeEngine(FakeMachine(), clock)
    app = Application(store, engine, clock, NoSecrets(), keeper or Keeper(), None, PEOPLE)  # type: ignore[arg-type]
    await app.loop.start()
    try:
        yield app
    finally:
        await app.loop.close()
        store.close()


def ask(user: str = "ann", name: str = "mnist", **spec: object) -> Submission:
    roles = {"worker": {"command": ["stay"]}}
    document = TrainingJob.model_validate({"metadata": {"name": name}, "spec": {"roles": roles, **spec}})
    return Submission(document, SubmissionOrigin(user=user))


async def put(app: Application, *queues: Queue) -> None:
    await app.apply([], queues, "ann")


def names(queues: Sequence[Queue]) -> list[str]:
    return [queue.name for queue in queues]


async def test_default_is_always_there_and_queues_outlive_a_restart(tmp_path: Path) -> None:
    async with desk(tmp_path) as app:
        assert app.queues.all() == [Queue("default")]
        assert app.queues.change(a_queue()) == "created"
        await put(app, a_queue(weight="2"), a_queue("alpha"))
        assert names(app.queues.all()) == ["alpha", "default", "research"]
        assert app.queues.change(a_queue(weight="2")) == "unchanged"
        assert app.queues.change(a_queue()) == "changed"
        assert [event.reason for event in app.events("queue:research")] == ["QueueCreated"]
        app.store.commit(ChangeSet(memory=b"learnt"))
    async with desk(tmp_path) as app:
        assert app.loop.snapshot.queues == {queue.name: queue for queue in app.queues.all()}
        assert app.queues.find("research").weight == 2.0
        assert app.loop.snapshot.memory == b"learnt"


async def test_what_is_as_it_was_is_not_put_again(tmp_path: Path) -> None:
    async with desk(tmp_path) as app:
        await put(app, a_queue())
        await put(app, a_queue())
        await put(app, a_queue(borrow=False))
        assert [event.reason for event in app.events("queue:research")] == ["QueueCreated", "QueueChanged"]
        assert app.queues.find("research").borrow is False


async def test_where_others_queue_a_name_that_is_not_known_is_theirs(tmp_path: Path) -> None:
    async with desk(tmp_path) as app:
        app.queues.theirs = True
        assert (await app.submit(ask(queue="gpu-team"))).spec.queue == "gpu-team"


async def test_a_queue_that_is_not_there_is_refused_with_the_one_that_was_meant(tmp_path: Path) -> None:
    async with desk(tmp_path) as app:
        await put(app, a_queue())
        with pytest.raises(RefusedError, match="mnist asks for the queue reserch, which does not exist") as refused:
            await app.submit(ask(queue="reserch"))
        assert refused.value.fix == "did you mean `research`?"
        with pytest.raises(RefusedError):
            await app.preview(ask(queue="reserch"))
        with pytest.raises(NotFoundError, match="there is no queue nowhere"):
            app.queues.find("nowhere")
        assert app.store.active_jobs() == []


async def test_only_members_submit(tmp_path: Path) -> None:
    async with desk(tmp_path) as app:
        await put(app, a_queue(members=["group:nlp", "user:eve"]), a_queue("staff", members=["group:staff"]))
        for user in ("ann", "eve"):
            assert (await app.submit(ask(user, queue="research"))).spec.queue == "research"
        with pytest.raises(DeniedError, match="bob may not submit to the queue research: group:nlp, user:eve may") as denied:
            await app.submit(ask("bob", queue="research"))
        assert denied.value.exit_code == 5
        assert denied.value.fix == "ask to be made a member, or use another queue: default, staff"
        with pytest.raises(DeniedError, match="a user without a name may not"):
            await app.submit(ask("", queue="research"))


async def test_limits_refuse_and_defaults_fill_in(tmp_path: Path) -> None:
    async with desk(tmp_path) as app:
        limits = {"timeout": "72h", "priority": 10}
        await put(app, a_queue(limits=limits, defaults={"timeout": "90m", "priority": -5}))
        silent = await app.submit(ask(queue="research"))
        assert (silent.spec.timeout, silent.spec.priority) == ("1h30m", -5)
        said = await app.submit(ask(queue="research", timeout="71h", priority=0))
        assert (said.spec.timeout, said.spec.priority) == ("71h", 0)
        with pytest.raises(RefusedError, match=r"a timeout of 73h; the longest that the queue research allows is 3d") as refused:
            await app.submit(ask(queue="research", timeout="73h"))
        assert refused.value.fix == "write `timeout: 3d` or less"
        with pytest.raises(RefusedError, match="asks for priority 11; the highest that the queue research allows is 10"):
            await app.submit(ask(queue="research", priority=11))


async def test_the_longest_timeout_is_the_default_one_and_no_fraction_is_lost(tmp_path: Path) -> None:
    async with desk(tmp_path) as app:
        await put(app, a_queue(limits={"timeout": "100000.25"}), a_queue("low", limits={"priority": -3}))
        assert (await app.submit(ask(queue="research"))).spec.timeout == "100000.250000s"
        assert (await app.submit(ask(queue="low"))).spec.priority == -3
        plain = await app.submit(ask())
        assert (plain.spec.timeout, plain.spec.priority) == (None, 0)


async def test_an_apply_sees_that_a_run_stands_though_its_queue_filled_something_in(tmp_path: Path) -> None:
    async with desk(tmp_path) as app:
        await put(app, a_queue(defaults={"priority": 7}))
        ((job, made),) = await app.apply([ask(queue="research")])
        assert (made, job.spec.priority) == (True, 7)
        assert await app.apply([ask(queue="research")]) == [(job, False)]


async def test_a_queue_and_its_first_run_come_together_or_not_at_all(tmp_path: Path) -> None:
    async with desk(tmp_path) as app:
        with pytest.raises(RefusedError):
            await app.apply([ask(queue="research", priority=9)], [a_queue(limits={"priority": 1})])
        assert app.queues.all() == [Queue("default")]
        ((job, made),) = await app.apply([ask(queue="research")], [a_queue()])
        assert (made, job.spec.queue) == (True, "research")
        assert names(app.store.queues()) == ["research"]


async def test_a_queue_in_use_is_not_deleted(tmp_path: Path) -> None:
    async with desk(tmp_path) as app:
        await put(app, a_queue())
        job = await app.submit(ask(queue="research"))
        with pytest.raises(ConflictError, match="the queue research is in use: mnist-1 waits or runs in it") as refused:
            await app.queues.delete("research")
        assert "fairway stop mnist-1" in refused.value.fix
        await _over(app, job)
        await app.queues.delete("research")
        assert app.queues.all() == [Queue("default")]
        assert app.store.queues() == []
        with pytest.raises(NotFoundError):
            await app.queues.delete("research")


async def test_a_run_whose_queue_has_gone_does_not_come_back(tmp_path: Path) -> None:
    async with desk(tmp_path) as app:
        await put(app, a_queue())
        job = await app.submit(ask(queue="research"))
        await _over(app, job)
        await app.queues.delete("research")
        with pytest.raises(ConflictError, match="the queue research of mnist-1 no longer exists"):
            await app.resume(job.key)


async def test_default_may_be_changed_and_goes_back_to_what_it_was(tmp_path: Path) -> None:
    async with desk(tmp_path) as app:
        with pytest.raises(RefusedError, match="cannot be deleted"):
            await app.queues.delete("default")
        await app.submit(ask())
        await put(app, a_queue("default", weight="3"))
        assert app.queues.find("default").weight == 3.0
        await app.queues.delete("default")
        assert app.queues.all() == [Queue("default")]


async def test_a_queue_deleted_while_its_run_is_received_leaves_nothing(tmp_path: Path) -> None:
    keeper = Keeper()
    async with desk(tmp_path, keeper) as app:
        await put(app, a_queue())
        keeper.meanwhile.append(app)
        with pytest.raises(ConflictError, match="no longer exists"):
            await app.submit(ask(queue="research"))
        assert app.store.active_jobs() == []


async def test_standings_count_runs_and_what_they_hold(tmp_path: Path) -> None:
    async with desk(tmp_path) as app:
        await put(app, a_queue(quota={"cpu": "500m"}))
        await app.submit(ask(queue="research"))
        default, research = app.queues.standings()
        assert (default.running, default.waiting) == (0, 0)
        assert (research.running, research.waiting, research.used) == (0, 1, {})
        async with app.loop.lock:
            await app.loop.turn()
        _, research = app.queues.standings()
        assert (research.running, research.waiting, research.used["cpu"]) == (1, 0, 1000)
        assert research.borrowed == {"cpu": 500}
        assert research.dominant == "cpu"
        assert 0 < research.share <= 1


async def _over(app: Application, job: JobState) -> None:
    await app.stop(job.key, now=True)
    async with app.loop.lock:
        await app.loop.turn()
        await app.loop.turn()
    assert app.is_over(job.key)
