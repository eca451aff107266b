"""The example without a framework, on real text, with real processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from gang import check_gang, run_alone, run_example

NAME = "17-command"


def test_workers_talk_over_the_addresses_they_were_given(home: Path) -> None:
    run = run_example(home, NAME, "--python", sys.executable)

    assert run.code == 0, run.output
    notes = run.ranks()
    check_gang(notes, 3, [number for number in range(max(note["samples"][-1] for note in notes) + 1) if number % 10])
    assert all(note["bits"] < note["bits_alone"] for note in notes)  # together they have more than any of them alone


def test_processes_of_their_own_are_no_gang(tmp_path: Path) -> None:
    place = {"FAIRWAY_PEERS": json.dumps({"worker": ["127.0.0.1:0"]}), "FAIRWAY_RANK": "0"}
    for _ in range(3):
        apart = run_alone(tmp_path, NAME, sys.executable, **place)
        assert apart.code == 0, apart.output
    notes = apart.ranks()

    assert all(note["bits"] == note["bits_alone"] for note in notes)
    with pytest.raises(AssertionError, match="number of peers"):
        check_gang(notes, 3, range(10))
