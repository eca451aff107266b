"""Numbers that programs write, 2,000 generated ones: all that is passed on can be stored, and bad values are reported by name."""

from __future__ import annotations

import json
import math
import os
import random
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from daemon_home import DaemonHome

from fairway.app.loop.loop import ReconcileLoop
from fairway.app.port.port import ChangeSet, MetricPoint
from fairway.engines.local.home import EngineHome
from fairway.engines.local.output.metric_reader import MetricReader
from fairway.plan.service.guard import rollout_guard
from fairway.plan.service.service_plan import ServiceMeasurements, ServiceSample, advance
from fairway.runtime import event_record
from fairway.serving.replica_prober import read_load
from fairway.spec.job import JobSpec, MetricSource, TaskRole
from fairway.state.job import JobKey, JobState
from fairway.state.phase import JobPhase
from fairway.state.service import ServiceRecord
from fairway.state.serving.load import RevisionLoad, RouteLoad
from fairway.stores.sqlite.store import SqliteStore
from fairway.testing.builder.service_builder import a_replica, a_service, apply_version, latency_bars
from fairway.testing.fake.fake_engine import FakeEngine, FakeMachine
from fairway.units import number

CASES = 2000
RUNS = 20
SEED = 14

SPICE: tuple[object, ...] = (
    *(0, 1, -1, 7, True, False, None, "", "7", "NaN", "Infinity", "-Infinity", "x" * 300, [], {}, [1], {"a": {"b": 1}}),
    *(2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 2**70, 10**400, -(10**19)),
    *(0.5, -0.0, 1e-320, 1e300, 1.7e308, -1e308, 2.5, 1e20, math.nan, math.inf, -math.inf),
)


class FixedClock:
    def now(self) -> float:
        return 1_700_000_000.0


class Writer:
    """Writes the output of one hostile program, driven by a seed."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder = folder
        self.chance = chance
        self.attempt = folder / "attempts" / "worker-0-0"
        self.attempt.mkdir()
        self.counter = 0

    def number(self) -> object:
        some = self.chance.random()
        if some < 0.3:
            return self.chance.choice(SPICE)
        if some < 0.6:
            return self.chance.randint(-(2 ** self.chance.randint(1, 80)), 2 ** self.chance.randint(1, 80))
        return struct.unpack("<d", self.chance.randbytes(8))[0]

    def name(self) -> str:
        odd = ("", "a\nb", "\x7f", "\ud800", "n" * 251, "n" * 100_000, "ü/ñ", "step", "\u2028", "'; DROP TABLE job; --")
        return self.chance.choice(odd) if self.chance.random() < 0.3 else f"m{self.chance.randint(0, 30)}"

    def report(self) -> None:
        entry = {
            "time": self.chance.choice((1.0, 1.6e9, self.number())),
            "step": self.number(),
            "metrics": {self.name(): self.number() for _ in range(self.chance.randint(0, 4))},
        }
        if self.chance.random() < 0.1:
            entry[self.chance.choice(("time", "step", "metrics"))] = self.chance.choice(SPICE)
        self.line(json.dumps(entry).encode())

    def junk(self) -> None:
        whole = json.dumps({"time": 1.0, "step": 3, "metrics": {"loss": 0.5}}).encode()
        kinds: tuple[Callable[[], bytes], ...] = (
            lambda: self.chance.randbytes(self.chance.randint(1, 400)),
            lambda: whole[: self.chance.randint(1, len(whole))],
            lambda: b"[" * self.chance.choice((10, 200_000)),
            lambda: b'{"metrics":' * 5_000,
            lambda: b'{"time":1,"step":' + b"9" * self.chance.choice((19, 400, 5_000)) + b',"metrics":{"a":1}}',
            lambda: whole[:-2] + b"," + b'"x":"' + b"y" * 1_200_000 + b'"}}',
        )
        self.line(self.chance.choices(kinds, weights=(8, 8, 2, 2, 8, 1))[0]())

    def line(self, data: bytes) -> None:
        with (self.attempt / "metrics-0.jsonl").open("ab") as file:
            file.write(data + b"\n")

    def printed(self) -> None:
        texts = ("9" * 20, "1" * 400, "-5", "1e30", "nan", "inf", "0.5", "1e-400", "7", "--", str(self.chance.randint(0, 2**70)))
        with (self.attempt / "out-0.log").open("ab") as file:
            file.write(f"step {self.chance.choice(texts)} loss {self.chance.choice(texts)}\n".encode())
        if self.chance.random() < 0.2:
            with (self.attempt / "out-0.index").open("ab") as file:
                file.write(self.chance.choice((b"5 1e400\n", b"9" * 100 + b" 3\n", b"-1 nan\n", b"junk\n", b"1 1600000000.0\n")))

    def events(self) -> None:
        self.counter += 1
        data = self.record(self.event())
        if self.chance.random() < 0.5:
            damaged = bytearray(data)
            for _ in range(self.chance.randint(1, 4)):
                damaged[self.chance.randrange(12, len(damaged))] = self.chance.randrange(256)
            data = bytes(damaged)
        if self.chance.random() < 0.2:
            head = struct.pack("<Q", self.chance.choice((2**63, 2**64 - 1, 10**9, 300_000)))
            data += head + struct.pack("<I", event_record.masked_checksum(head))
        (self.folder / "tensorboard" / f"{self.counter}.tfevents").write_bytes(data)

    def event(self) -> bytes:
        tag = self.name().encode("utf-8", "surrogatepass")[:100]
        value = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + self.chance.randbytes(4)
        summary = b"\x0a" + bytes([len(value)]) + value
        moment = self.chance.choice((struct.pack("<d", 1.6e9), self.chance.randbytes(8)))
        step = bytes(self.chance.randrange(128, 256) for _ in range(self.chance.randint(0, 9))) + b"\x01"
        return b"\x09" + moment + b"\x10" + step + b"\x2a" + bytes([len(summary) & 127 | 128, len(summary) >> 7]) + summary

    @staticmethod
    def record(data: bytes) -> bytes:
        length = struct.pack("<Q", len(data))
        return length + struct.pack("<I", event_record.masked_checksum(length)) + data + b"\0\0\0\0"

    def manifest(self) -> None:
        self.counter += 1
        folder = self.folder / "checkpoints" / f"step-{self.counter:012d}"
        folder.mkdir()
        fields = {"step": 5, "sequence": self.counter, "world_size": 1, "meta": {}, "files": {}}
        if self.chance.random() < 0.8:
            fields[self.chance.choice(tuple(fields))] = self.number()
        some = self.chance.random()
        if some < 0.05:
            os.mkfifo(folder / "manifest.json")
        elif some < 0.1:
            (folder / "manifest.json").symlink_to("/dev/zero")
        elif some < 0.2:
            (folder / "manifest.json").write_bytes(self.chance.randbytes(100))
        else:
            (folder / "manifest.json").write_text(json.dumps(fields))


def sound(point: MetricPoint) -> bool:
    return (
        0.0 <= point.time <= time.time() + 90_000
        and (point.step is None or (type(point.step) is int and number.int64(point.step) == point.step))
        and all(type(value) is float and name.encode() for name, value in point.metrics.items())
    )


@pytest.mark.timeout(110)
async def test_generated_numbers_stop_nothing_and_bad_ones_are_named(tmp_path: Path) -> None:
    chance, home = random.Random(SEED), EngineHome(tmp_path)
    store = SqliteStore(tmp_path / "fairway.db")
    clock = FixedClock()
    loop, meter = ReconcileLoop(store, FakeEngine(FakeMachine(), clock), clock), MetricReader(home)
    spec = JobSpec(
        roles={"worker": TaskRole(command=("python",))}, metrics=MetricSource(pattern=r"step (?P<step>\S+) loss (?P<loss>\S+)")
    )
    jobs = [
        JobState(JobKey("default", f"run-{count}"), "run", count, spec, phase=JobPhase.RUNNING) for count in range(1, RUNS + 1)
    ]
    store.commit(ChangeSet(jobs=tuple(jobs)))
    writers = [Writer(home.make_shared_parts(job.key), chance) for job in jobs]
    refused: dict[JobKey, list[str]] = {job.key: [] for job in jobs}
    kept = 0
    for case in range(CASES):
        writer = writers[case % RUNS]
        # Reported metrics suppress the lesser sources of their run, so a run has one kind of source.
        source = (
            (writer.report, writer.report, writer.junk, writer.manifest),
            (writer.printed, writer.printed, writer.manifest),
            (writer.events, writer.events, writer.manifest),
        )[case % RUNS % 3]
        chance.choice(source)()
        if case % 100 == 99:
            for job in jobs:
                loop.snapshot.put_job(loop.snapshot.jobs.get(job.key, job))
            for seen in meter.measure(list(loop.snapshot.jobs.values())):
                assert all(map(sound, seen.points))
                kept += len(seen.points)
                refused[seen.key] += seen.refused
                await loop.report(seen)
    writers[0].line(b'{"time":1600000000,"step":12345,"metrics":{"last":1}}')
    (seen,) = meter.measure([jobs[0]])
    await loop.report(seen)
    found = store.points_of(jobs[0].key, "last")
    assert [point.step for point in found] == [12345]
    assert kept > 300
    for job in jobs:
        assert refused[job.key], f"nothing of {job.key} was refused"
        assert len(refused[job.key]) == len(set(refused[job.key])) <= 12
        assert all(" refused: " in reason and len(reason) < 700 for reason in refused[job.key])
        assert not [
            reason for reason in refused[job.key] if "it cannot be read (" in reason or "wrote cannot be read (" in reason
        ], "a reader failed"
        stored = store.get_job(job.key)
        assert stored is not None
        assert stored.progress == loop.snapshot.jobs[job.key].progress or "nan" in repr(stored.progress)
    store.close()


def measure_outcome(chance: random.Random, before: RevisionLoad) -> RevisionLoad:
    """Return what a router counts by one look later, of honest clients and of others."""
    more = chance.randint(0, 30)
    count, total, squares = before.outcomes.get("clicks", (0, 0.0, 0.0))
    value = chance.choice((1.0, 0.0, 1e308, -1e308, math.inf, math.nan, 5e-324)) if chance.random() < 0.2 else 1.0
    return replace(
        before,
        arrived=before.arrived + more,
        answered=chance.choice((before.answered + more, 2**63 - 1, 0)) if chance.random() < 0.05 else before.answered + more,
        failed=before.failed + chance.choice((0, 0, 1)),
        latency=latency_bars({0.01: before.answered + more}),
        latency_sum=before.latency_sum + value,
        outcomes={"clicks": (count + more, total + value * more, squares + value * value * more)},
    )


def test_generated_loads_and_outcomes_stop_no_service_and_bad_ones_are_named(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    store = SqliteStore(tmp_path / "fairway.db")
    fields = {"rollout": {"strategy": "ab", "guard": {"metric": {"name": "clicks", "better": "higher"}}}}
    service = apply_version(a_service(2, **fields), 2, 0.0, **fields)
    replicas = (a_replica(1), a_replica(2, revision=2))
    seen, loads, epoch = ServiceMeasurements(), {1: RevisionLoad(), 2: RevisionLoad()}, 0
    taken = refused = left_out = 0
    for look in range(CASES // 4):
        now = look * 2.0
        told = {"served": look * 5, "busy_seconds": look * 0.5, "queue": 0}
        if chance.random() < 0.5:
            told[chance.choice(tuple(told))] = chance.choice(SPICE)
        replica_loads = {}
        for name in ("r1-1", "r2-2"):
            load, reason = read_load(json.dumps(told).encode(), now)
            assert (load is None) is bool(reason)
            refused += bool(reason)
            taken += load is not None
            replica_loads.update({name: load} if load else {})
        if chance.random() < 0.02:
            loads, epoch = {1: RevisionLoad(), 2: RevisionLoad()}, epoch + 1
        loads = {number: measure_outcome(chance, load) for number, load in loads.items()}
        arrived = sum(load.arrived for load in loads.values())
        seen = seen.add(ServiceSample(now, RouteLoad(now, epoch=str(epoch), arrived=arrived, revisions=loads), replica_loads))
        service = advance(service, replicas, seen, now).service
        store.commit(ChangeSet(services=(ServiceRecord(service, replicas),)))
        assert 1 <= service.scale.wanted <= service.spec.replicas.max
        assert all(map(math.isfinite, service.rollout.marks.values()))
        left_out += any("left out" in sentence for sentence in rollout_guard.findings(service, service.rollout))
    (record,) = store.services()
    assert record.service == service
    assert taken > 300
    assert refused > 300
    assert left_out > 100
    store.close()


HOSTILE = """
import math, os, time
import fairway
fairway.report(step=1, loss=0.5)
for step in (2**63, -(2**63) - 1, 10**5000, math.inf, math.nan):
    fairway.report(step=step, loss=1)
print("step 99999999999999999999 loss 1", flush=True)
folder = os.environ["FAIRWAY_ATTEMPT_DIR"]
with open(f"{folder}/metrics-0.jsonl", "ab") as file:
    file.write(b'\\x00\\xff junk\\n{"time":1e400,"metrics":{}}\\n{"time":1,"step":1,"metrics":{"\\\\ud800":1}}\\n')
    file.write(b"[" * 100_000 + b"\\n")
os.mkfifo(f"{folder}/metrics-1.jsonl")
os.makedirs(f"{folder}/metrics-2.jsonl")
checkpoints = os.environ["FAIRWAY_CHECKPOINT_DIR"]
os.makedirs(f"{checkpoints}/step-000000000009")
os.mkfifo(f"{checkpoints}/step-000000000009/manifest.json")
os.makedirs(f"{checkpoints}/step-000000000010")
with open(f"{checkpoints}/step-000000000010/manifest.json", "w") as file:
    file.write('{"step": %d, "sequence": 1, "world_size": 1, "meta": {}, "files": {}}' % 2**70)
fairway.report(step=2, loss=float("nan"))
fairway.report(step=3, loss=0.25)
open(os.environ["MARKS"] + "/written", "w").close()
while not os.path.exists(f'{os.environ["MARKS"]}/go-{os.environ["FAIRWAY_JOB"]}'):
    time.sleep(0.01)
fairway.report(step=4, loss=0.125)
"""


def test_a_program_that_reports_nonsense_stops_neither_the_daemon_nor_others(home: DaemonHome) -> None:
    (home.work / "hostile.py").write_text(HOSTILE)
    pattern = {"metrics": {"pattern": r"step (?P<step>\S+) loss (?P<loss>\S+)"}}
    run = home.submit(home.document("hostile", 1, sys.executable, str(home.work / "hostile.py"), **pattern))
    home.until(lambda: (home.marks / "written").exists(), "the reports")
    home.until(lambda: home.get(run)["progress"]["step"] == 3, "the last good report")
    other = home.submit(home.document("other", 1, sys.executable, "-c", "import fairway; fairway.report(step=7, loss=1)"))
    assert home.until_phase(other, "Succeeded")["progress"]["step"] == 7
    home.kill_daemon()
    home.tell(run)
    assert home.until_phase(run, "Succeeded")["progress"]["step"] == 4
    points = json.loads(home.ask("metrics", run, "-o", "json"))["points"]
    assert {point["step"]: point["metrics"].get("loss") for point in points} == {1: 0.5, 2: None, 3: 0.25, 4: 0.125}
    assert "a turn of the loop failed" not in home.log
    home.ask("delete", run)
    assert home.names() == [other]
