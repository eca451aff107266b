"""Preparations: one per run, reported while they last, retried after a failure."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fairway.engines.local.provision.preparation import MOST_KEPT, Preparations
from fairway.engines.local.provision.preparer import PreparedRun
from fairway.engines.local.provision.program_run import Say
from fairway.state.job import JobState
from fairway.testing.builder.job_builder import a_job

DONE = PreparedRun(Path("/work"), "python", {})


class Script:
    """A preparation that finishes when the test releases it."""

    def __init__(self) -> None:
        self.calls = 0
        self.go = asyncio.Event()
        self.problem: Exception | None = None

    async def prepare(self, job: JobState, say: Say) -> PreparedRun:
        self.calls += 1
        say("installing")
        await self.go.wait()
        if self.problem:
            raise self.problem
        return DONE


@pytest.fixture
async def script() -> Script:
    return Script()


async def test_a_run_is_prepared_once(script: Script) -> None:
    woken = asyncio.Event()
    preparing = Preparations(script, woken.set)
    job = a_job()
    for _ in range(3):
        preparing.begin(job)
    await asyncio.wait_for(woken.wait(), 5)
    assert (preparing.busy(job.key), preparing.said(job.key), preparing.result(job.key)) == (True, "installing", None)
    woken.clear()
    script.go.set()
    await asyncio.wait_for(woken.wait(), 5)
    assert (preparing.busy(job.key), preparing.said(job.key), preparing.result(job.key)) == (False, "", DONE)
    preparing.begin(job)
    assert script.calls == 1
    preparing.close()


async def test_what_failed_is_told_and_tried_again(script: Script) -> None:
    preparing = Preparations(script, lambda: None)
    job = a_job()
    script.problem = ValueError("no disk")
    script.go.set()
    preparing.begin(job)
    while preparing.busy(job.key):
        await asyncio.sleep(0)
    assert preparing.problem(job.key) is script.problem
    assert preparing.result(job.key) is None
    script.problem = None
    preparing.begin(job)
    while preparing.busy(job.key):
        await asyncio.sleep(0)
    assert preparing.problem(job.key) is None
    assert preparing.result(job.key) is DONE
    preparing.close()


async def test_what_is_forgotten_is_given_up(script: Script) -> None:
    preparing = Preparations(script, lambda: None)
    job = a_job()
    preparing.begin(job)
    await asyncio.sleep(0)
    preparing.forget(job.key)
    assert not preparing.busy(job.key)
    assert preparing.problem(job.key) is None
    await asyncio.sleep(0)


async def test_only_the_newest_are_remembered(script: Script) -> None:
    preparing = Preparations(script, lambda: None)
    script.go.set()
    for number in range(1, MOST_KEPT + 20):
        preparing.begin(a_job(name=f"mnist-{number}"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert preparing.result(a_job(name="mnist-1").key) is None
    assert preparing.result(a_job(name=f"mnist-{MOST_KEPT + 10}").key) is DONE
    preparing.close()
