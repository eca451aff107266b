"""The MXNet example, on real digits, with real processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gang import DIGITS, GOOD, check_gang, run_example

pytestmark = [
    pytest.mark.framework("mxnet"),
    pytest.mark.skipif(sys.version_info >= (3, 12), reason="MXNet's last release does not run on Python 3.12"),
]


def test_key_value_store(home: Path, python: str) -> None:
    run = run_example(home, "16-mxnet-kvstore", "--python", python)

    assert run.code == 0, run.output
    check_gang(run.ranks(), 2, DIGITS)
    assert run.note("rank-0")["accuracy"] > GOOD
    assert "at step 200" in run.output


def test_without_peers_it_refuses(home: Path, python: str) -> None:
    run = run_example(home, "16-mxnet-kvstore", "--python", python, "--framework", "command", "--retries", "0")

    assert run.code == 1, run.output
    assert "DMLC_NUM_WORKER" in run.output
    assert run.ranks() == []
