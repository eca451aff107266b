"""report(): what reaches the file, and what can fail on the way."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.runtime import metrics


@pytest.fixture(autouse=True)
def _fresh_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_writer", metrics._MetricsFile())


def lines(folder: Path, rank: int = 0) -> list[tuple[float, int | None, dict[str, float]] | None]:
    path = folder / "attempt" / f"metrics-{rank}.jsonl"
    return [metrics.parse(line) for line in path.read_bytes().splitlines()]


class Tensor:
    """Like a tensor of one or more elements: `float()` and `item()` work only for one."""

    def __init__(self, *values: float) -> None:
        self.values = values

    def item(self) -> float:
        if len(self.values) != 1:
            message = "a Tensor with 2 elements cannot be converted to Scalar"
            raise RuntimeError(message)
        return self.values[0]


def test_a_report_is_one_line(in_job: Path) -> None:
    metrics.report(step=3, loss=0.5, accuracy=1)
    metrics.report(loss=0.25)
    (first, second) = lines(in_job)
    assert first is not None
    assert second is not None
    assert first[1:] == (3, {"loss": 0.5, "accuracy": 1.0})
    assert second[1:] == (None, {"loss": 0.25})
    assert second[0] >= first[0] > 1.7e9


def test_each_process_of_a_task_has_its_own_file(in_job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics.report(step=1, loss=1.0)
    monkeypatch.setenv("FAIRWAY_LOCAL_RANK", "1")
    metrics.report(step=2, loss=2.0)
    assert [entry[1] for rank in (0, 1) for entry in lines(in_job, rank) if entry] == [1, 2]


def test_outside_of_a_job_nothing_happens(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    metrics.report(step=1, loss=0.5)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")
    assert metrics.dropped() == 0


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("value", ["0.5", b"1", Tensor(1.0, 2.0), [1], {}, 1j])
def test_what_is_no_number_is_a_mistake_everywhere(request: pytest.FixtureRequest, inside: bool, value: object) -> None:
    if inside:
        request.getfixturevalue("in_job")
    with pytest.raises(TypeError, match=r"loss=.* is not a number"):
        metrics.report(step=1, loss=value)
    with pytest.raises(TypeError, match=r"step=.* is not a whole number"):
        metrics.report(step="one", loss=1.0)


def test_tensors_and_none_are_understood(in_job: Path) -> None:
    metrics.report(step=Step(4), loss=Tensor(0.5), accuracy=None, big=10**400)
    (entry,) = lines(in_job)
    assert entry is not None
    assert entry[1:] == (4, {"loss": 0.5, "big": math.inf})


class Step:
    def __init__(self, value: int) -> None:
        self.value = value

    def __int__(self) -> int:
        return self.value


NAMES = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"], exclude_characters="\x7f"), min_size=1, max_size=20)
NUMBERS = st.dictionaries(NAMES, st.floats())


@given(NUMBERS, st.none() | st.integers(-(2**63), 2**63 - 1))
def test_every_number_survives_as_valid_json(numbers: dict[str, float], step: int | None) -> None:
    line = metrics._line(1.5, step, numbers)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    entry = metrics.parse(line)
    assert entry is not None
    assert entry[:2] == (1.5, step)
    assert entry[2].keys() == numbers.keys()
    for name, number in numbers.items():
        assert entry[2][name] == number or (math.isnan(entry[2][name]) and math.isnan(number))


@given(st.binary(max_size=200))
def test_a_foreign_line_is_none_or_sound(line: bytes) -> None:
    entry = metrics.parse(line)
    assert entry is None or isinstance(entry[2], dict)


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"1", b'{"time": 1}', b'{"time": 1, "step": "x", "metrics": {}}', b'{"time":1,"metrics":{"a":[]}}']
)
def test_a_torn_line_is_none(line: bytes) -> None:
    assert metrics.parse(line) is None


@pytest.mark.parametrize(
    "step",
    [2**63, -(2**63) - 1, 2**127, 10**5000, math.inf, -math.inf, math.nan],
    ids=lambda step: str(step)[:8] if step < 10**99 else "vast",
)
def test_a_step_out_of_range_is_refused_by_the_reader_and_raises_nothing(in_job: Path, step: float) -> None:
    metrics.report(step=step, loss=1.0)
    metrics.report(step=2, loss=0.5)
    refused: list[tuple[str, str]] = []
    path = in_job / "attempt" / "metrics-0.jsonl"
    found = [metrics.parse(line, lambda *what: refused.append(what)) for line in path.read_bytes().splitlines()]
    assert found[0] is None
    assert found[1] is not None
    assert found[1][1:] == (2, {"loss": 0.5})
    ((kind, reason),) = refused
    assert kind == "step"
    assert reason.startswith("step ")


BAD_LINES = {
    "a step beyond 64 bits": (
        b'{"time":1,"step":9223372036854775808,"metrics":{"a":1}}',
        "step 9223372036854775808 is out of range",
    ),
    "a step that is text": (b'{"time":1,"step":"7","metrics":{"a":1}}', "step '7' is not a whole number"),
    "a step that is a truth": (b'{"time":1,"step":true,"metrics":{"a":1}}', "step True is not a whole number"),
    "a fraction of a step": (b'{"time":1,"step":1.5,"metrics":{"a":1}}', "step 1.5 is not a whole number"),
    "a step that is a list": (b'{"time":1,"step":[1],"metrics":{"a":1}}', "step a list of 1 is not a whole number"),
    "no time": (b'{"step":1,"metrics":{"a":1}}', "time None is out of range"),
    "a time that is no number": (b'{"time":NaN,"step":1,"metrics":{"a":1}}', "time nan is out of range"),
    "a time in a thousand years": (b'{"time":4e10,"step":1,"metrics":{"a":1}}', "time 40000000000.0 is out of range"),
    "a time before the epoch": (b'{"time":-1,"step":1,"metrics":{"a":1}}', "time -1 is out of range"),
    "metrics that are a list": (b'{"time":1,"step":1,"metrics":[1]}', "a line is not a report"),
    "binary junk": (bytes(range(1, 256)), "a line is not a report"),
    "deep nesting": (b"[" * 100_000, "a line is not a report"),
    "a number of 5,000 digits": (b'{"time":1,"step":' + b"9" * 5000 + b',"metrics":{}}', "a line is not a report"),
    "a line of 2 MB": (b'{"time":1,"metrics":{"a":1,"b":"' + b"x" * 2_000_000 + b'"}}', "a line of 2,000,035 bytes is left out"),
    "a value of 400 digits": (b'{"time":1,"metrics":{"a":' + b"9" * 400 + b"}}", "metric 'a' is an integer of 1329 bits"),
    "a value that is text": (b'{"time":1,"metrics":{"a":"0.5"}}', "metric 'a' is '0.5', which is not a number"),
    "a value that is a truth": (b'{"time":1,"metrics":{"a":false}}', "metric 'a' is False, which is not a number"),
    "nested values": (b'{"time":1,"metrics":{"a":{"b":1}}}', "metric 'a' is a dict of 1, which is not a number"),
    "a name of 1 MB": (b'{"time":1,"metrics":{"' + b"n" * 1_000_000 + b'":1}}', "a name has 1 to 250 printable characters"),
    "an empty name": (b'{"time":1,"metrics":{"":1}}', "a name has 1 to 250"),
    "half of a surrogate pair": (rb'{"time":1,"metrics":{"\ud800":1}}', "a name has 1 to 250"),
    "a line end in a name": (rb'{"time":1,"metrics":{"a\nb":1}}', "a name has 1 to 250"),
}


@pytest.mark.parametrize(("line", "reason"), BAD_LINES.values(), ids=BAD_LINES.keys())
def test_what_cannot_be_kept_is_refused_and_named(line: bytes, reason: str) -> None:
    refused: list[str] = []
    assert metrics.parse(line, lambda _kind, why: refused.append(why)) is None
    assert len(refused) == 1
    assert reason in refused[0]
    assert len(refused[0]) < 300


def test_a_bad_metric_is_left_out_and_the_rest_counts() -> None:
    refused: list[str] = []
    entry = metrics.parse(b'{"time":1,"step":3,"metrics":{"a":1,"b":[],"c":"NaN"}}', lambda _kind, why: refused.append(why))
    assert entry is not None
    assert entry[:2] == (1.0, 3)
    assert entry[2]["a"] == 1.0
    assert math.isnan(entry[2]["c"])
    assert "b" not in entry[2]
    assert len(refused) == 1


def test_a_blank_line_is_no_mistake() -> None:
    assert metrics.parse(b" ", lambda *_: pytest.fail("refused")) is None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which Linux has")
def test_a_full_disk_loses_reports_and_nothing_else(in_job: Path) -> None:
    (in_job / "attempt" / "metrics-0.jsonl").symlink_to("/dev/full")
    metrics.report(step=1, loss=0.5)
    metrics.report(step=2, loss=0.5)
    assert metrics.dropped() == 2


def test_after_a_line_that_was_cut_the_next_one_is_whole(in_job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:10]))
    metrics.report(step=1, loss=0.5)
    monkeypatch.setattr(os, "write", write)
    metrics.report(step=2, loss=0.5)
    metrics.report(step=3, loss=0.5)
    assert [entry[1] if entry else None for entry in lines(in_job)] == [None, 2, 3]
    assert metrics.dropped() == 1


def test_a_folder_that_is_not_there_loses_reports_until_it_is(in_job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (in_job / "attempt").rmdir()
    metrics.report(step=1, loss=0.5)
    assert metrics.dropped() == 1
    (in_job / "attempt").mkdir()
    metrics.report(step=2, loss=0.5)
    assert [entry[1] for entry in lines(in_job) if entry] == [2]


@pytest.mark.timeout(10)
def test_a_pipe_without_a_reader_does_not_block(in_job: Path) -> None:
    os.mkfifo(in_job / "attempt" / "metrics-0.jsonl")
    metrics.report(step=1, loss=0.5)
    assert metrics.dropped() == 1


def test_threads_do_not_mix_their_lines(in_job: Path) -> None:
    def many(step: int) -> None:
        for number in range(200):
            metrics.report(step=step, loss=number)

    threads = [threading.Thread(target=many, args=(step,)) for step in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = lines(in_job)
    assert len(found) == 800
    assert None not in found


@pytest.mark.timeout(20)
def test_a_signal_handler_may_report_while_a_report_is_under_way(in_job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def interrupted(file: int, line: bytes) -> int:
        monkeypatch.setattr(os, "write", write)
        signal.raise_signal(signal.SIGUSR1)
        return write(file, line)

    before = signal.signal(signal.SIGUSR1, lambda *_: metrics.report(step=2, loss=0.0))
    try:
        monkeypatch.setattr(os, "write", interrupted)
        metrics.report(step=1, loss=0.0)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert sorted(entry[1] or 0 for entry in lines(in_job) if entry) == [1, 2]


@pytest.mark.timeout(20)
def test_a_forked_child_reports_though_a_thread_held_the_lock(in_job: Path) -> None:
    locked, release = threading.Event(), threading.Event()

    def hold() -> None:
        with metrics._writer._lock:
            locked.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    locked.wait()
    child = os.fork()
    if child == 0:
        metrics.report(step=9, loss=1.0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    release.set()
    thread.join()
    assert [entry[1] for entry in lines(in_job) if entry] == [9]
