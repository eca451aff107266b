"""Requests with an idempotency key are executed once: also when sent at the same time, and after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fairway.app.application import Application
from fairway.app.idempotency import IdempotencyKey, ReceiptBook, request_key
from fairway.app.port.port import JobFilter
from fairway.app.submission import Submission
from fairway.errors import ConflictError, UsageError
from fairway.spec.job import TrainingJob
from fairway.state.job import JobKey, JobState, SubmissionOrigin
from fairway.state.request_receipt import LIFE
from fairway.stores.sqlite.store import SqliteStore
from fairway.testing.builder.job_builder import a_queue
from fairway.testing.fake.fake_engine import FakeEngine, FakeMachine

KEY = IdempotencyKey("build-1", "default", "ann")


@dataclass
class ManualClock:
    """A clock that the test advances."""

    time: float = 1_700_000_000.0

    def now(self) -> float:
        """Return the time."""
        return self.time


class NoSecrets:
    """Has no secrets."""

    def names(self) -> list[str]:
        """Return no names."""
        return []


@dataclass
class Keeper:
    """Stores nothing; lets a test act while a submission is received."""

    received: int = 0
    slowly: asyncio.Event | None = None
    kept: list[JobKey] = field(default_factory=list)

    async def receive(self, submission: Submission) -> SubmissionOrigin:
        """Return the origin unchanged."""
        self.received += 1
        if self.slowly is not None:
            await self.slowly.wait()
        return submission.origin

    async def missing(self, submission: Submission, port: int = 0) -> list[str]:
        return []

    def keep(self, key: JobKey, submission: Submission) -> None:
        """Record the name."""
        self.kept.append(key)

    async def fingerprint(self, job: JobState) -> str:
        """Return an empty digest."""
        return ""


@dataclass
class Desk:
    """An application whose loop turns only when the test calls it."""

    app: Application
    clock: ManualClock
    keeper: Keeper

    def total(self) -> int:
        """Return the number of runs."""
        return self.app.store.list_jobs(JobFilter()).total

    async def settled(self) -> None:
        """Take a turn of the loop."""
        async with self.app.loop.lock:
            await self.app.loop.turn()


@asynccontextmanager
async def desk(folder: Path, clock: ManualClock | None = None) -> AsyncIterator[Desk]:
    clock, keeper = clock or ManualClock(), Keeper()
    store = SqliteStore(folder / "fairway.db")
    app = Application(store, FakeEngine(FakeMachine(), clock), clock, NoSecrets(), keeper, None)  # type: ignore[arg-type]
    await app.loop.start()
    try:
        yield Desk(app, clock, keeper)
    finally:
        await app.loop.close()
        store.close()


def ask(name: str = "mnist", command: tuple[str, ...] = ("stay",), **spec: object) -> Submission:
    roles = {"worker": {"command": command}}
    return Submission(TrainingJob.model_validate({"metadata": {"name": name}, "spec": {"roles": roles, **spec}}))


async def test_the_same_key_gives_the_same_run_also_after_a_restart(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        (first,) = await at.app.submit_all([ask()], key=KEY)
        (again,) = await at.app.submit_all([ask()], key=KEY)
        assert first.key == again.key
    async with desk(tmp_path) as at:
        (later,) = await at.app.submit_all([ask()], key=KEY)
        assert later.key == first.key
        assert at.total() == 1
        assert at.keeper.kept == [], "nothing was kept for a run that is not made"


async def test_without_a_key_or_with_another_each_submit_makes_a_run(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        await at.app.submit_all([ask()], key=KEY)
        for key in (None, replace(KEY, text="build-2"), replace(KEY, namespace="team"), replace(KEY, user="bob")):
            await at.app.submit_all([ask()], key=key)
        assert at.total() == 5


async def test_the_answer_is_the_run_as_it_is_now(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        (first,) = await at.app.submit_all([ask(command=("exit", "0"))], key=KEY)
        await at.settled()
        await at.settled()
        (again,) = await at.app.submit_all([ask(command=("exit", "0"))], key=KEY)
        assert (again.key, again.phase.over) == (first.key, True)


@pytest.mark.parametrize(
    "other",
    [ask(priority=3), ask("other"), ask(command=("exit", "1")), replace(ask(), files={"payload": b"x"})],
    ids=["spec", "name", "command", "files"],
)
async def test_the_same_key_for_something_else_is_refused(tmp_path: Path, other: Submission) -> None:
    async with desk(tmp_path) as at:
        await at.app.submit_all([ask()], key=KEY)
        with pytest.raises(ConflictError, match=r"build-1.*default/mnist-1.*nothing was changed"):
            await at.app.submit_all([other], key=KEY)
        with pytest.raises(ConflictError):
            await at.app.submit_all([ask(), ask()], key=KEY)
        assert at.total() == 1


async def test_where_a_document_was_sent_from_does_not_count(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        first = replace(ask(), origin=SubmissionOrigin("ann", "/builds/1"), environment={"BUILD": "1"})
        await at.app.submit_all([first], key=KEY)
        await at.app.submit_all(
            [replace(first, origin=SubmissionOrigin("ann", "/builds/2"), environment={"BUILD": "2"})], key=KEY
        )
        assert at.total() == 1


async def test_two_requests_at_the_same_time_make_one_run(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        at.keeper.slowly = asyncio.Event()
        requests = [asyncio.create_task(at.app.submit_all([ask()], key=KEY)) for _ in range(5)]
        while not at.keeper.received:
            await asyncio.sleep(0)
        at.keeper.slowly.set()
        results = await asyncio.gather(*requests)
        assert {job.key.name for (job,) in results} == {"mnist-1"}
        assert (at.total(), at.keeper.received) == (1, 1)


async def test_a_request_that_failed_is_done_by_the_next(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        at.keeper.slowly = asyncio.Event()
        cut = asyncio.create_task(at.app.submit_all([ask()], key=KEY))
        while not at.keeper.received:
            await asyncio.sleep(0)
        cut.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cut
        at.keeper.slowly = None
        assert at.total() == 0
        await at.app.submit_all([ask()], key=KEY)
        assert at.total() == 1


async def test_a_run_that_was_deleted_is_not_made_again(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        (job,) = await at.app.submit_all([ask(command=("exit", "0"))], key=KEY)
        await at.settled()
        await at.settled()
        await at.app.delete(job.key)
        with pytest.raises(ConflictError, match=r"created default/mnist-1, which was deleted[\s\S]*another key"):
            await at.app.submit_all([ask(command=("exit", "0"))], key=KEY)
        assert at.total() == 0


async def test_a_key_is_forgotten_after_its_time(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        await at.app.submit_all([ask()], key=KEY)
        at.clock.time += LIFE - 1
        await at.app.submit_all([ask()], key=KEY)
        assert at.total() == 1
        at.clock.time += 1
        await at.app.submit_all([ask("other")], key=KEY)
        assert at.total() == 2


async def test_an_apply_with_a_key_says_again_what_it_did(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        await at.app.apply([ask("b")])
        documents, queues = [ask("a", command=("exit", "1"), restart={"max": 0}), ask("b"), ask("c")], [a_queue("research")]
        first = await at.app.apply(documents, queues, "ann", KEY)
        assert [(job.key.name, made) for job, made in first] == [("a-1", True), ("b-1", False), ("c-1", True)]
        await at.settled()
        await at.settled()
        # Another apply would create a new run for the failed one; the same request again changes nothing.
        again = await at.app.apply(documents, queues, "ann", KEY)
        assert [(job.key.name, made) for job, made in again] == [("a-1", True), ("b-1", False), ("c-1", True)]
        assert at.total() == 3
        assert [made for _, made in await at.app.apply(documents, queues, "ann")] == [True, False, False]


async def test_an_apply_that_changed_nothing_changes_nothing_later(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        await at.app.apply([ask("a", command=("exit", "1"), restart={"max": 0})])
        await at.app.apply([ask("a", command=("exit", "1"), restart={"max": 0})], key=KEY)
        await at.settled()
        await at.settled()
        again = await at.app.apply([ask("a", command=("exit", "1"), restart={"max": 0})], key=KEY)
        assert [(job.key.name, made) for job, made in again] == [("a-1", False)]
        assert at.total() == 1


async def test_a_resume_with_a_key_is_done_once(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        job = await at.app.submit(ask(command=("exit", "1"), restart={"max": 0}))
        await at.settled()
        await at.settled()
        assert (await at.app.resume(job.key, KEY)).attempt == 1
        await at.settled()
        await at.settled()
        assert at.app.find("default", "mnist-1").phase.over, "it failed again"
        assert (await at.app.resume(job.key, KEY)).attempt == 1
        assert at.app.find("default", "mnist-1").phase.over, "and is not started a third time"
        assert (await at.app.resume(job.key, replace(KEY, text="build-2"))).attempt == 2


async def test_locks_of_requests_that_are_over_are_let_go(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        receipts: ReceiptBook = at.app.receipts
        await asyncio.gather(*(at.app.submit_all([ask()], key=replace(KEY, text=str(number % 3))) for number in range(9)))
        assert at.total() == 3
        assert receipts._locks == {}


@pytest.mark.parametrize("text", ["a b", "a\nb", "x" * 201, "é", "a\0b"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a valid key"):
        request_key(text, "default")


def test_a_part_of_a_request_has_a_key_of_its_own() -> None:
    assert request_key("", "default") is None
    assert len({KEY.id, KEY.part("a").id, KEY.part("b").id, replace(KEY, user="").id}) == 4
