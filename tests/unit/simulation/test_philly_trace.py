"""Reading recorded queues."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairway.errors import SpecError
from fairway.simulation import philly_trace
from fairway.simulation.queue.recorded_job import RecordedJob


def test_jobs_come_in_the_order_of_submission() -> None:
    lines = ["submit_s,gpus,duration_s,model", "70.0,8,20.2,LM", "0.0,4,474149.5,A3C"]
    assert philly_trace.parse(lines) == [RecordedJob(0.0, 4, 474149.5), RecordedJob(70.0, 8, 20.2)]


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("duration_s,submit_s,gpus\n5,1,2\n")
    assert philly_trace.read(tmp_path / "t.csv") == [RecordedJob(1.0, 2, 5.0)]


def test_every_mistake_is_named_with_its_line() -> None:
    with pytest.raises(SpecError) as caught:
        philly_trace.parse(["submit_s,gpus,duration_s", "0,1,5", "soon,0.5,-3", "1,2"], "t.csv")
    assert [str(mistake) for mistake in caught.value.mistakes] == [
        't.csv:3 submit_s: "soon" is not a number',
        "t.csv:3 gpus: 0.5 is not a whole number of GPUs; write 1 or more",
        "t.csv:3 duration_s: -3 is not a count of seconds or GPUs",
        't.csv:4 duration_s: "" is not a number',
    ]


def test_a_missing_column_is_named() -> None:
    with pytest.raises(SpecError, match="has no column gpus"):
        philly_trace.parse(["submit_s,duration_s", "0,1"])
