"""Sampled requests become versions of a dataset: on time, each once, and within a limit."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fairway.app import sample
from fairway.app.dataset import DatasetUseCases
from fairway.app.loop.loop import ReconcileLoop
from fairway.app.port.port import ChangeSet
from fairway.app.sample import SampleGatherer
from fairway.plan.service.replica import SAMPLES_LABEL, SERVICE_LABEL
from fairway.registry.blob import BlobStore
from fairway.registry.dataset import DatasetRegistry
from fairway.serving.sample_folder import LocalSampleFolder
from fairway.spec.job import JobSpec
from fairway.state.dataset import DatasetVersion
from fairway.state.job import JobKey, JobState
from fairway.state.phase import JobPhase
from fairway.testing.fake.fake_engine import FakeEngine, FakeMachine
from fairway.testing.fake.memory_store import MemoryStore

NOW = 1_700_000_000.0


class Clock:
    time = NOW

    def now(self) -> float:
        return self.time


class House:
    """Replicas that write samples, and the collector of these samples."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock, self.store = root, Clock(), MemoryStore()
        self.datasets = DatasetRegistry(root, BlobStore(root / "blobs"))
        self.open()

    def open(self) -> None:
        """Create everything anew, as after the death of the daemon."""
        self.loop = ReconcileLoop(self.store, FakeEngine(FakeMachine(), self.clock), self.clock)
        commands = DatasetUseCases(self.loop, self.datasets)
        self.samples = SampleGatherer(self.loop, LocalSampleFolder(self.root / "jobs"), self.datasets, commands)

    def replica(self, number: int, phase: JobPhase = JobPhase.RUNNING, model: str = "adds@1", data: str = "asked") -> JobState:
        spec = JobSpec.model_validate({"data": {"model": f"model://{model}"}, "roles": {"replica": {"command": ["true"]}}})
        key, labels = JobKey("default.services", f"adds-r1-{number}"), {SERVICE_LABEL: "adds", SAMPLES_LABEL: data}
        job = JobState(key=key, series="adds-r1", number=number, spec=spec, phase=phase, labels=labels)
        self.store.commit(ChangeSet(jobs=(job,)))
        return job

    def write(self, job: JobState, name: str, text: str = "{}\n", age: float = 0.0) -> Path:
        folder = self.root / "jobs" / job.key.namespace / job.key.name / "shared" / "requests"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"requests-{name}.jsonl"
        path.write_text(text)
        os.utime(path, (self.clock.time - age, self.clock.time - age))
        return path

    def end(self, job: JobState) -> JobState:
        over = replace(job, phase=JobPhase.STOPPED)
        self.store.commit(ChangeSet(jobs=(over,)))
        return over

    def gather(self) -> list[DatasetVersion]:
        asyncio.run(self.samples.gather())
        return self.datasets.list()

    def paths(self) -> list[str]:
        return [file.path for file in self.datasets.files(self.datasets.get("asked"))]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_a_replica_that_is_over_is_gathered_at_once_with_its_lineage(house: House) -> None:
    job = house.replica(1, JobPhase.STOPPED)
    house.write(job, "1")
    (version,) = house.gather()
    assert (version.services, version.models) == (("default/adds",), ("adds@1",))
    assert house.paths() == ["requests-1-adds-r1-1.jsonl"]
    assert house.gather() == [version]
    assert LocalSampleFolder(house.root / "jobs").runs() == [], "nothing is looked at again"


def test_one_that_runs_is_gathered_when_its_files_are_old_or_large(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    job = house.replica(1)
    path = house.write(job, "1", age=sample.GATHER_AFTER - 1)
    part = house.write(job, "2")
    part.rename(part.with_suffix(".jsonl.part"))
    assert house.gather() == []
    house.clock.time += 1
    assert [str(version) for version in house.gather()] == ["asked@1"]
    assert not path.exists()
    assert part.with_suffix(".jsonl.part").exists(), "what is being written is left alone"
    house.write(job, "3", "x" * 100)
    assert len(house.gather()) == 1
    monkeypatch.setattr(sample, "GATHER_SIZE", 100)
    assert len(house.gather()) == 2
    assert house.paths() == ["requests-1-adds-r1-1.jsonl", "requests-3-adds-r1-1.jsonl"], "a version has the earlier ones too"


def test_a_killed_replica_loses_at_most_the_request_that_it_was_writing(house: House) -> None:
    job = house.replica(1)
    part = house.write(job, "1", '{"a":1}\n{"b":2}\n{"c"')
    part.rename(part.with_suffix(".jsonl.part"))
    empty = house.write(job, "2", '{"half"')
    empty.rename(empty.with_suffix(".jsonl.part"))
    house.end(job)
    (version,) = house.gather()
    found = house.datasets.resolve(str(version)) / "requests-1-adds-r1-1.jsonl"
    assert found.read_text() == '{"a":1}\n{"b":2}\n'
    assert version.files == 1


def test_a_crash_before_the_files_are_removed_makes_no_double(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.write(house.replica(1, JobPhase.FAILED), "1")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalSampleFolder, "remove", die)
    with pytest.raises(KeyboardInterrupt):
        house.gather()
    monkeypatch.undo()
    house.open()
    assert [str(version) for version in house.gather()] == ["asked@1"]
    house.write(house.replica(2, JobPhase.STOPPED, "adds@2"), "2")
    assert [version.models for version in house.gather()] == [("adds@1",), ("adds@1", "adds@2")]
    assert len(house.paths()) == 2


def test_the_oldest_requests_and_versions_go(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "LARGEST", 250)
    monkeypatch.setattr(sample, "VERSIONS", 3)
    for number in range(1, 7):
        house.write(house.replica(number, JobPhase.STOPPED), str(number), f"{number}" * 100)
        house.gather()
    assert [version.version for version in house.datasets.list()] == [4, 5, 6]
    assert house.paths() == ["requests-5-adds-r1-5.jsonl", "requests-6-adds-r1-6.jsonl"]


def test_a_dataset_of_requests_that_a_run_uses_keeps_its_versions(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "VERSIONS", 1)
    spec = JobSpec.model_validate({"data": {"rows": "asked@1"}, "roles": {"worker": {"command": ["true"]}}})
    house.loop.snapshot.put_job(JobState(key=JobKey("default", "eval-1"), series="eval", number=1, spec=spec))
    for number in (1, 2):
        house.write(house.replica(number, JobPhase.STOPPED), str(number), str(number))
        house.gather()
    assert [version.version for version in house.datasets.list()] == [1, 2]


def test_what_somebody_added_by_hand_is_not_mixed_with_requests(house: House, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("1\n")
    house.write(house.replica(1, JobPhase.STOPPED), "1", "a")
    house.gather()
    house.datasets.add("asked", tmp_path / "mine.csv", NOW)
    house.write(house.replica(2, JobPhase.STOPPED), "2", "b")
    house.gather()
    assert house.paths() == ["requests-1-adds-r1-1.jsonl", "requests-2-adds-r1-2.jsonl"]


async def test_what_comes_from_a_replica_that_has_ended_where_it_was_is_gathered_at_once(house: House) -> None:
    job = house.replica(1)
    house.write(job, "1")
    house.samples.came(job, last=False)
    await house.samples.close()
    assert house.datasets.list() == [], "of one that runs it is gathered in its time"
    house.samples.came(job, last=True)
    await house.samples.close()
    assert house.paths() == ["requests-1-adds-r1-1.jsonl"]
    house.write(job, "2")
    house.samples.came(job, last=False)
    await house.samples.gather()
    assert len(house.datasets.list()) == 1, "it goes on elsewhere, in its time"
    house.samples.came(house.end(job), last=False)
    await house.samples.close()
    assert house.paths() == ["requests-1-adds-r1-1.jsonl", "requests-2-adds-r1-1.jsonl"]


async def test_what_was_sent_again_after_it_became_a_version_makes_no_other(house: House) -> None:
    job = house.replica(1, JobPhase.STOPPED)
    house.write(job, "1")
    versions = [*await asyncio.to_thread(house.gather)]
    house.write(job, "1")
    assert await asyncio.to_thread(house.gather) == versions


async def test_the_end_of_a_replica_and_the_clock_make_it_look(house: House) -> None:
    job = house.replica(1)
    house.loop.snapshot.put_job(job)
    house.write(job, "1", age=sample.GATHER_AFTER)
    assert await house.samples.turn() == NOW + sample.LOOK_EVERY
    await house.samples.close()
    assert len(house.datasets.list()) == 1
    house.write(job, "2")
    for told in house.loop.watchers.over:
        told(house.end(job))
    await house.samples.close()
    assert len(house.datasets.list()) == 2
