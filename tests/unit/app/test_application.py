"""The use cases over a fake engine and a real store, and what remains after a restart of the daemon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairway.app.application import Application
from fairway.app.port.port import ChangeSet, LogQuery, MetricPoint, Observation
from fairway.app.submission import Submission
from fairway.errors import ConflictError, NeverFitsError, NotFoundError, RefusedError
from fairway.plan.scheduling import scheduler_memory
from fairway.spec.job import TrainingJob
from fairway.state.job import JobKey, JobState, SubmissionOrigin
from fairway.state.node import ClusterNode
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import TaskExit
from fairway.stores.sqlite.store import SqliteStore
from fairway.testing.fake.fake_engine import FakeEngine, FakeMachine


class ManualClock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.time = 1_700_000_000.0

    def now(self) -> float:
        """Return the time."""
        return self.time


class NoSecrets:
    """A secret store with one secret."""

    def names(self) -> list[str]:
        """Return the names."""
        return ["HF_TOKEN"]


class Keeper:
    """Stores nothing."""

    async def receive(self, submission: Submission) -> SubmissionOrigin:
        """Return the origin unchanged."""
        return submission.origin

    async def missing(self, submission: Submission, port: int = 0) -> list[str]:
        return []

    def keep(self, key: JobKey, submission: Submission) -> None:
        """Store nothing."""

    async def fingerprint(self, job: JobState) -> str:
        """Return the same digest for any folder."""
        return "abc"


@dataclass
class Desk:
    """An application with its engine, machine and clock."""

    app: Application
    engine: FakeEngine
    machine: FakeMachine
    clock: ManualClock

    async def settled(self) -> None:
        """Take a turn of the loop."""
        async with self.app.loop.lock:
            await self.app.loop.turn()


@asynccontextmanager
async def desk(folder: Path, machine: FakeMachine | None = None, clock: ManualClock | None = None) -> AsyncIterator[Desk]:
    """An application whose loop turns only when the test calls it."""
    machine, clock = machine or FakeMachine(), clock or ManualClock()
    store = SqliteStore(folder / "fairway.db")
    engine = FakeEngine(machine, clock)
    app = Application(store, engine, clock, NoSecrets(), Keeper(), None)  # type: ignore[arg-type]
    await app.loop.start()
    try:
        yield Desk(app, engine, machine, clock)
    finally:
        await app.loop.close()
        store.close()


def ask(name: str = "mnist", command: tuple[str, ...] = ("stay",), workers: int = 1, **spec: object) -> Submission:
    roles = {"worker": {"command": command, "replicas": {"min": workers, "max": workers}}}
    return Submission(TrainingJob.model_validate({"metadata": {"name": name}, "spec": {"roles": roles, **spec}}))


async def test_runs_of_a_series_are_numbered_and_a_bare_name_means_the_newest(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        assert (await at.app.submit(ask())).key.name == "mnist-1"
        assert (await at.app.submit(ask())).key.name == "mnist-2"
        assert at.app.find("default", "mnist").key.name == "mnist-2"
        assert at.app.find("default", "mnist-1").key.name == "mnist-1"
        assert len(at.app.runs("default", "mnist")) == 2


async def test_a_run_goes_from_submitted_to_succeeded(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        job = await at.app.submit(ask(command=("exit", "0"), workers=2))
        await at.settled()
        await at.settled()
        done = at.app.find("default", job.key.name)
        assert done.phase is JobPhase.SUCCEEDED
        assert [event.reason for event in at.app.events(str(job.key))] == ["Submitted", "Placed", "Succeeded"]
        assert at.app.is_over(job.key)


async def test_what_can_never_fit_is_refused_and_takes_no_number(tmp_path: Path) -> None:
    async with desk(tmp_path, FakeMachine(ClusterNode("here", cpu=2.0, memory=1 << 30))) as at:
        huge = {"worker": {"command": ["x"], "resources": {"memory": "64Gi"}}}
        document = TrainingJob.model_validate({"metadata": {"name": "big"}, "spec": {"roles": huge}})
        with pytest.raises(NeverFitsError, match=r"needs 64 GiB of memory.*1 GiB is all there is"):
            await at.app.submit(Submission(document))
        assert (await at.app.submit(ask("big"))).number == 1


async def test_a_missing_secret_is_refused_with_the_fix(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        with pytest.raises(RefusedError, match="fairway secret set NO_SUCH"):
            await at.app.submit(ask(secrets=["HF_TOKEN", "NO_SUCH"]))


async def test_an_unknown_name_gets_did_you_mean(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        await at.app.submit(ask("mnist"))
        with pytest.raises(NotFoundError, match="did you mean mnist"):
            at.app.find("default", "mnst")
        with pytest.raises(NotFoundError, match="the newest is mnist-1"):
            at.app.find("default", "mnist-9")


async def test_stop_then_resume_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        job = await at.app.submit(ask())
        await at.settled()
        point = MetricPoint(at.clock.time, 40, {"loss": 0.5}, task="worker-0")
        at.machine.observations = [Observation(job.key, (point,), checkpoint_step=40, checkpoint_time=at.clock.time)]
        at.clock.time += 10
        await at.settled()
        with pytest.raises(ConflictError, match="is not over"):
            await at.app.resume(job.key)
        await at.app.stop(job.key)
        await at.settled()
        await at.settled()
        assert at.app.find("default", "mnist").phase is JobPhase.STOPPED
        resumed = await at.app.resume(job.key)
        await at.settled()
        again = at.app.find("default", "mnist")
        assert again.phase is JobPhase.RUNNING
        assert resumed.resume is not None
        assert (resumed.resume.step, resumed.resume.lost_seconds) == (40, 10.0)
        assert [key.attempt for key in at.machine.started] == [0, 1]
        assert at.app.points(again)[0].metrics == {"loss": 0.5}


async def test_delete_of_a_running_run_kills_it_and_leaves_nothing(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        job = await at.app.submit(ask())
        await at.settled()
        deleting = asyncio.create_task(at.app.delete(job.key))
        while not deleting.done():
            await at.settled()
            await asyncio.sleep(0)
        with pytest.raises(NotFoundError):
            at.app.find("default", "mnist-1")
        assert at.machine.forgotten == [job.key]
        assert not at.machine.running
        assert (await at.app.submit(ask())).key.name == "mnist-2", "numbers are never used twice"


async def test_a_restarted_daemon_adopts_what_runs_and_reads_what_ended(tmp_path: Path) -> None:
    machine, clock = FakeMachine(), ManualClock()
    async with desk(tmp_path, machine, clock) as at:
        living = await at.app.submit(ask("living"))
        dying = await at.app.submit(ask("dying", restart={"max": 0}))
        waiting = await at.app.submit(ask("waiting"))
        await at.settled()
        assert len(machine.running) == 3
    victim = next(key for key in machine.running if key.job == dying.key.name)
    machine.running.discard(victim)
    machine.ended[victim] = TaskExit(3)
    async with desk(tmp_path, machine, clock) as at:
        await at.settled()
        assert at.app.find("default", "living").phase is JobPhase.RUNNING
        died = at.app.find("default", "dying")
        assert died.phase is JobPhase.FAILED
        assert died.outcome is not None
        assert died.outcome.exit_code == 3
        assert len(machine.started) == len(set(machine.started)) == 3, "nothing was started twice"
        assert {living.key, waiting.key} == set(at.app.loop.snapshot.jobs)


async def test_a_plan_is_shown_without_changing_anything(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        shown = await at.app.preview(ask(workers=2))
        assert [task.node for task in shown.tasks] == ["here", "here"]
        assert at.app.loop.snapshot.jobs == {}
        assert (await at.app.submit(ask())).number == 1


async def test_logs_come_from_the_engine(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        job = await at.app.submit(ask(workers=2))
        await at.settled()
        found = [chunk.data async for chunk in at.app.logs(job, LogQuery(role="worker"))]
        assert found == [b"hello from worker-0\n", b"hello from worker-1\n"]


async def test_whoever_watches_a_run_is_told(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        job = await at.app.submit(ask())
        watching = asyncio.create_task(at.app.changed(job))
        await asyncio.sleep(0)
        await at.settled()
        assert (await watching).phase is JobPhase.RUNNING


async def test_apply_submits_what_is_new_or_changed_and_leaves_the_rest(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        first = await at.app.apply([ask("a"), ask("b")])
        assert [(job.key.name, made) for job, made in first] == [("a-1", True), ("b-1", True)]
        again = await at.app.apply([ask("a"), ask("b", priority=3)])
        assert [(job.key.name, made) for job, made in again] == [("a-1", False), ("b-2", True)]


async def test_the_code_of_a_run_in_place_is_recorded_while_it_runs(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        job = await at.app.submit(ask(code={"in_place": True}))
        while not at.app.find("default", "mnist").origin.code_digest:
            await at.settled()
            await asyncio.sleep(0)
        assert at.app.find("default", "mnist").origin.code_digest == "abc"
        assert at.app.store.get_job(job.key) == at.app.find("default", "mnist")


async def test_one_of_several_running_tasks_is_found_by_name_or_place(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        job = await at.app.submit(ask(workers=2))
        await at.settled()
        assert at.app.running_task(job).key.task == "worker-0"
        assert at.app.running_task(job, role="worker", index=1).key.task == "worker-1"
        with pytest.raises(ConflictError, match="worker-7 of mnist-1 is not running; running: worker-0, worker-1"):
            at.app.running_task(job, "worker-7")


async def test_logs_and_records_go_when_they_have_stayed_their_time(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        job = await at.app.submit(ask(command=("exit", "0"), keep={"logs": "1h", "record": "2d"}))
        kept = await at.app.submit(ask("kept", command=("exit", "0"), keep={"logs": "forever"}))
        await at.settled()
        at.clock.time += 3601
        await at.app.loop.sweep()
        assert at.machine.logs_forgotten == [job.key]
        assert at.app.find("default", "mnist-1").logs_gone
        at.clock.time += 2 * 86400
        await at.app.loop.sweep()
        assert at.machine.logs_forgotten == [job.key], "they go once"
        assert at.machine.forgotten == [job.key]
        assert at.app.find("default", "kept").key == kept.key


async def test_whoever_reports_first_speaks_until_the_leader_does(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        job = await at.app.submit(ask(workers=2))
        await at.settled()

        async def report(task: str, step: int) -> int | None:
            at.clock.time += 2
            at.machine.observations = [Observation(job.key, (MetricPoint(at.clock.time, step, {}, task=task),))]
            await at.settled()
            return at.app.find("default", "mnist").progress.step

        assert await report("worker-1", 5) == 5
        assert await report("worker-0", 3) == 3
        assert await report("worker-1", 9) == 3, "the leader speaks now"


async def test_a_start_that_could_not_be_remembered_is_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk(tmp_path) as at:
        job = await at.app.submit(ask())
        commit, failed = at.app.store.commit, []

        def fail_once(changes: ChangeSet) -> None:
            if not failed and any(task.phase is TaskPhase.PLACED for task in changes.tasks):
                failed.append(changes)
                raise OSError("no space left on device")
            commit(changes)

        monkeypatch.setattr(at.app.store, "commit", fail_once)
        await at.settled()
        assert failed, "the start was never tried"
        assert at.app.find("default", job.key.name).phase is JobPhase.RUNNING
        remembered = scheduler_memory.decode(at.app.store.memory() or b"")
        assert list(remembered.sitting) == [str(job.key)]
        assert remembered.ran == {}, "the start that never was counts as a turn that it has had"


async def test_a_loop_that_is_told_to_end_in_the_moment_in_which_it_wakes_ends(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        running = asyncio.create_task(d.app.loop.run())
        await asyncio.sleep(0)
        while d.app.loop.lock.locked():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        d.app.loop.wake()
        running.cancel()
        done, _ = await asyncio.wait([running], timeout=5.0)
        assert done == {running}
        assert running.cancelled()
