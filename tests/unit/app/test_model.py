"""Models over a fake engine and real stores: what runs register, and what is refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairway.app.application import Application
from fairway.app.model import ModelRegistration
from fairway.app.port.port import ChangeSet, MetricPoint, Observation
from fairway.app.submission import Submission
from fairway.errors import ConflictError, NotFoundError, RefusedError, UnavailableError
from fairway.registry.blob import BlobStore
from fairway.registry.dataset import DatasetRegistry
from fairway.registry.model import ModelRegistry
from fairway.spec.job import TrainingJob
from fairway.state.dataset import DatasetVersion
from fairway.state.job import JobKey, JobState, SubmissionOrigin
from fairway.state.mlflow_record import TrackedRun
from fairway.state.model import ModelFacts, ModelVersion
from fairway.stores.sqlite.store import SqliteStore
from fairway.testing.builder.model_file import exported_file, onnx_file, pickled_file
from fairway.testing.fake.fake_engine import FakeEngine, FakeMachine


class ManualClock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.time = 1_700_000_000.0

    def now(self) -> float:
        """Return the time, a little later with each call."""
        self.time += 0.001
        return self.time


class NoSecrets:
    """Has no secrets."""

    def names(self) -> list[str]:
        """Return no names."""
        return []


class Keeper:
    """Returns a fixed digest of the code."""

    async def receive(self, submission: Submission) -> SubmissionOrigin:
        """Return an origin with a digest."""
        return SubmissionOrigin(user="ana", interpreter="/venv/bin/python", code_digest="c" * 64)

    async def missing(self, submission: Submission, port: int = 0) -> list[str]:
        return []

    def keep(self, key: JobKey, submission: Submission) -> None:
        """Store nothing."""

    async def fingerprint(self, job: JobState) -> str:
        """Return an empty digest."""
        return ""


@dataclass
class Desk:
    """An application and its parts."""

    app: Application
    machine: FakeMachine
    store: ModelRegistry
    outputs: Path

    async def settled(self) -> None:
        """Let every task that can run now run, and take turns of the loop."""
        for _ in range(3):
            async with self.app.loop.lock:
                await self.app.loop.turn()

    def leave(self, run: str, name: str = "model.onnx", content: bytes = b"") -> None:
        """Write a file into the output of a run."""
        folder = self.outputs / run
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content or onnx_file())

    def reasons(self, run: str) -> list[str]:
        """Return the events of a run about models."""
        return [f"{event.reason}: {event.message}" for event in self.app.events(f"default/{run}") if "egistered" in event.reason]


@asynccontextmanager
async def desk(
    folder: Path, machine: FakeMachine | None = None, models: type[ModelRegistry] = ModelRegistry
) -> AsyncIterator[Desk]:
    machine, clock = machine or FakeMachine(), ManualClock()
    store, blobs = SqliteStore(folder / "fairway.db"), BlobStore(folder / "blobs")
    kept = models(folder, blobs)
    engine = FakeEngine(machine, clock)
    app = Application(store, engine, clock, NoSecrets(), Keeper(), DatasetRegistry(folder, blobs), models=kept)  # type: ignore[arg-type]
    app.models.output_of = lambda key, _name: str(folder / "outputs" / key.name)
    await app.loop.start()
    await app.models.start()
    try:
        yield Desk(app, machine, kept, folder / "outputs")
    finally:
        await app.loop.close()
        store.close()


def ask(code: str = "0", **spec: object) -> Submission:
    roles = {"worker": {"command": ["exit", code, "--lr", "0.1", "--fast", "--depth=3"], "env": {"SEED": "7"}}}
    given = {"outputs": {"model": "mnist"}, "restart": {"max": 0}, "roles": roles, **spec}
    return Submission(TrainingJob.model_validate({"metadata": {"name": "train"}, "spec": given}))


async def test_what_a_run_leaves_behind_becomes_a_version_with_its_lineage(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "a").write_text("1")
        at.app.datasets.add("digits", str(tmp_path / "data"), 1.0)
        at.leave("train-1")
        job = await at.app.submit(ask(data={"train": "digits@latest", "raw": "/x"}))
        await at.settled()
        (made,) = await at.app.models.list()
        assert (str(made), made.format) == ("mnist@1", "onnx")
        lineage = made.lineage
        assert (lineage.run, lineage.code) == ("default/train-1", "c" * 64)
        assert lineage.data == {"train": "digits@1", "raw": "/x"}
        assert lineage.environment == {"python": "/venv/bin/python"}
        assert lineage.parameters == {"SEED": "7", "lr": "0.1", "depth": "3"}
        assert at.reasons("train-1") == ["Registered: registered mnist@1"]
        assert at.store.expected() == []
        done = at.app.find("default", job.key.name)
        assert [str(version) for version in at.app.models.of_job(done)] == ["mnist@1"]


async def test_the_dataset_of_a_run_is_there_for_whoever_asks_when_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk(tmp_path) as at:
        (tmp_path / "outputs" / "train-1").mkdir(parents=True)
        (tmp_path / "outputs" / "train-1" / "rows").write_text("1")
        asked, add = threading.Event(), at.app.datasets.add

        def slow(*given: Any, **more: Any) -> DatasetVersion:
            assert asked.wait(10), "nobody asked"
            return add(*given, **more)

        monkeypatch.setattr(at.app.datasets, "add", slow)
        await at.app.submit(ask(outputs={"dataset": "scored"}))
        await at.settled()
        assert at.app.datasets.list() == []
        asking = asyncio.create_task(at.app.dataset_commands.get("scored@1"))
        await asyncio.sleep(0)
        asked.set()
        assert (await asking).run == "default/train-1"
        assert [str(each) for each in await at.app.dataset_commands.list()] == ["scored@1"]


async def test_what_its_program_logged_goes_into_the_lineage(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        at.leave("train-1")
        at.app.store.commit(ChangeSet(tracked=(TrackedRun("default", "train-1", job="train-1", params={"lr": "0.2", "f": "1"}),)))
        await at.app.submit(ask())
        await at.settled()
        (made,) = await at.app.models.list()
        assert made.lineage.parameters == {"SEED": "7", "lr": "0.2", "depth": "3", "f": "1"}


async def test_a_daemon_that_died_in_between_registers_once(tmp_path: Path) -> None:
    machine = FakeMachine()
    async with desk(tmp_path, machine) as at:
        at.leave("train-1")
        await at.app.submit(ask())
        await at.settled()
        await at.app.models.catch_up()
        # As if the daemon had crashed after the registration and before it was recorded.
        at.store.expect("default/train-1")
    async with desk(tmp_path, machine) as at:
        assert [str(version) for version in await at.app.models.list()] == ["mnist@1"]
        assert at.reasons("train-1") == ["Registered: registered mnist@1"]
        assert at.store.expected() == []


async def test_what_ended_while_nobody_looked_is_registered_at_the_start(tmp_path: Path) -> None:
    machine = FakeMachine()
    async with desk(tmp_path, machine) as at:
        await at.app.submit(ask())
        at.app.loop.watchers.over.clear()
        await at.settled()
        assert at.store.list() == []
    async with desk(tmp_path, machine) as at:
        at.leave("train-1")
        at.store.expect("default/never-1")
        await at.app.models.catch_up()
        assert [str(version) for version in at.store.list()] == ["mnist@1"]


async def test_a_run_that_failed_leaves_no_version_and_one_that_is_resumed_may(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        at.leave("train-1")
        job = await at.app.submit(ask("3"))
        await at.settled()
        assert await at.app.models.list() == []
        assert at.store.expected() == []
        await at.app.resume(job.key)
        assert list(at.store.expected()) == ["default/train-1"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("", b"", "there is no file or folder"),
        ("model.pt", pickled_file(), "--allow-pickle"),
        ("notes.txt", b"x", "no model of a known format"),
    ],
)
async def test_what_cannot_be_a_version_is_told_once(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    async with desk(tmp_path) as at:
        if name:
            at.leave("train-1", name, content)
        await at.app.submit(ask())
        await at.settled()
        assert await at.app.models.list() == await at.app.models.list() == []
        (reason,) = at.reasons("train-1")
        assert reason.startswith("NotRegistered: the output model is no version of mnist")
        assert words in reason
        assert at.store.expected() == []
        assert words in at.app.models.refusal(at.app.find("default", "train-1"))


async def test_a_program_that_a_run_left_needs_no_other_consent(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        at.leave("train-1", "model.pt2", exported_file())
        job = await at.app.submit(ask())
        await at.settled()
        assert [version.format for version in await at.app.models.list()] == ["torch-export"]
        again = ModelRegistration("again", str(tmp_path / "outputs" / "train-1"), run=job.key)
        assert (await at.app.models.register(again)).lineage.run == "default/train-1"


async def test_naming_a_run_gives_no_consent_for_files_from_elsewhere(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        at.leave("train-1")
        job = await at.app.submit(ask())
        await at.settled()
        (tmp_path / "m.pt2").write_bytes(exported_file())
        link = tmp_path / "outputs" / "train-1" / "link.pt2"
        link.symlink_to(tmp_path / "m.pt2")
        for source in (tmp_path / "m.pt2", link):
            with pytest.raises(RefusedError) as refusal:
                await at.app.models.register(ModelRegistration("mine", str(source), run=job.key))
            assert "--allow-pickle" in refusal.value.fix
        trusted = ModelRegistration("mine", str(tmp_path / "m.pt2"), ModelFacts(allow_pickle=True))
        assert (await at.app.models.register(trusted)).format == "torch-export"


async def test_an_output_that_is_no_name_of_a_model_is_told(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        at.leave("train-1")
        job = await at.app.submit(ask(outputs={"model": "../My Model"}))
        await at.settled()
        assert await at.app.models.list() == []
        assert "is not a valid name" in at.reasons("train-1")[0]
        assert at.app.models.of_job(at.app.find("default", job.key.name)) == ()


async def test_a_delete_gives_back_the_space_while_others_register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairway.app.model.FREE_AFTER", 0.0)
    async with desk(tmp_path) as at:
        at.leave("mine")
        at.leave("mine", "large", b"x" * 2_000_000)
        version = await at.app.models.register(ModelRegistration("mnist", str(tmp_path / "outputs" / "mine")))
        blobs = BlobStore(tmp_path / "blobs")
        with blobs.writing():
            await at.app.models.delete("mnist@1")
            await asyncio.sleep(0.05)
            assert blobs.has(version.digest), "somebody writes"
        await freed(at.store)
        assert not blobs.has(version.digest)
        assert sum(512 * path.stat().st_blocks for path in (tmp_path / "blobs").rglob("*")) < 200_000


async def freed(store: ModelRegistry) -> None:
    async with asyncio.timeout(10):
        while store.freeable():
            await asyncio.sleep(0.01)


async def test_a_start_gives_back_the_space_of_deleted_versions_and_leaves_what_code_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk(tmp_path) as at:
        at.leave("mine")
        at.leave("mine", "large", b"x" * 2_000_000)
        source = str(tmp_path / "outputs" / "mine")
        version = await at.app.models.register(ModelRegistration("mnist", source))
        shared = at.app.datasets.add("same", source, 1.0)
        await at.app.models.delete("mnist@1")
    monkeypatch.setattr("fairway.app.model.FREE_AFTER", 0.0)
    async with desk(tmp_path) as at:
        await freed(at.store)
        assert shared.digest == version.digest
        assert BlobStore(tmp_path / "blobs").has(version.digest)
        version = await at.app.models.register(ModelRegistration("mnist", str(tmp_path / "outputs" / "mine" / "model.onnx")))
        await at.app.models.delete(str(version))
    async with desk(tmp_path) as at:
        await freed(at.store)
        assert not BlobStore(tmp_path / "blobs").has(version.digest)
        assert (at.app.datasets.get("same").digest, at.store.freeable()) == (shared.digest, False)


async def test_a_full_disk_is_tried_again(tmp_path: Path) -> None:
    class FullAtFirst(ModelRegistry):
        full = True

        def register(self, name: str, path: str, facts: ModelFacts, now: float) -> ModelVersion:
            if self.full:
                message = "the disk is full"
                raise UnavailableError(message)
            return super().register(name, path, facts, now)

    async with desk(tmp_path, models=FullAtFirst) as at:
        at.leave("train-1")
        await at.app.submit(ask())
        await at.settled()
        assert await at.app.models.list() == []
        assert list(at.store.expected()) == ["default/train-1"]
        assert at.reasons("train-1") == []
        FullAtFirst.full = False
        assert [str(version) for version in await at.app.models.list()] == ["mnist@1"]


async def test_a_registration_takes_over_the_last_and_the_best_values_of_a_run(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        job = await at.app.submit(ask(outputs={}))
        values = [(1, 0.9), (2, 0.2), (3, 0.4), (0, 0.8)]
        points = [MetricPoint(float(time), step, {"loss": y, "f1": y}) for time, (step, y) in enumerate(values)]
        await at.app.loop.report(Observation(job.key, tuple(points)))
        at.leave("mine")
        source = str(tmp_path / "outputs" / "mine")
        version = await at.app.models.register(ModelRegistration("mnist", source, run=job.key))
        assert (version.metrics, version.best) == ({"loss": 0.4, "f1": 0.4}, {"loss": 0.2, "f1": 0.9})
        given = await at.app.models.register(ModelRegistration("mnist", source, ModelFacts(metrics={"f1": 0.95}), job.key))
        assert (given.metrics, given.best) == ({"loss": 0.4, "f1": 0.95}, {"loss": 0.2}), "0.95 is no value of the run"
        assert await at.app.models.get("mnist@2") == given


async def test_a_registration_takes_over_what_is_known_of_a_run(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        job = await at.app.submit(ask(outputs={}))
        at.leave("mine")
        source = str(tmp_path / "outputs" / "mine")
        version = await at.app.models.register(ModelRegistration("mnist", source, ModelFacts(metrics={"f1": 1.0}), job.key))
        assert (version.lineage.run, version.metrics) == ("default/train-1", {"f1": 1.0})
        imported = await at.app.models.register(ModelRegistration("mnist", source, imported=True))
        assert (imported.lineage.source, imported.lineage.run) == (source, "")
        with pytest.raises(NotFoundError, match="no run gone-1"):
            await at.app.models.register(ModelRegistration("mnist", source, run=JobKey("default", "gone-1")))


async def test_what_is_served_or_aliased_is_not_deleted(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        at.leave("mine")
        for number in range(5):
            facts = ModelFacts(metrics={"n": number})
            await at.app.models.register(ModelRegistration("mnist", str(tmp_path / "outputs" / "mine"), facts))
        at.app.models.in_use = lambda version: "service/digits" if version.version == 2 else ""
        await at.app.models.promote("mnist@1", "champion")
        await at.app.models.promote("mnist@1", "champion")
        with pytest.raises(ConflictError, match="it is champion"):
            await at.app.models.delete("mnist@1")
        with pytest.raises(ConflictError, match="served by service/digits"):
            await at.app.models.delete("mnist@2")
        assert [str(each) for each in await at.app.models.superfluous("mnist", 2)] == ["mnist@3"]
        assert str(await at.app.models.delete("mnist@3")) == "mnist@3"
        with pytest.raises(ConflictError, match="mnist@2 does not have the alias champion"):
            await at.app.models.demote("mnist@2", "champion")
        assert await at.app.models.demote("mnist", "champion") == 1
        reasons = [event.reason for event in at.app.events("model:mnist")]
        assert reasons == ["ModelRegistered"] * 5 + ["ModelPromoted", "ModelDeleted", "ModelDemoted"]
        with pytest.raises(NotFoundError):
            await at.app.models.superfluous("gone", 2)
