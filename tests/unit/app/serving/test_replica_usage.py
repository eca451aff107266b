"""What replicas use of their resources."""

import asyncio
from dataclasses import replace

import pytest

from fairway.app.port.port import TaskUsage
from fairway.app.serving.replica_usage import EVERY, ReplicaUsageSampler, part_of
from fairway.plan.service.replica import replica_run
from fairway.state.task import Task, TaskKey, TaskNeed
from fairway.testing.builder.service_builder import a_replica, a_service

GIB = 2**30


def running(**fields):
    service = a_service(**fields)
    run = replica_run(service, service.revisions[0], a_replica(1), "python")
    need = TaskNeed(cpu=2.0, memory=4 * GIB, gpus=1)
    return run, Task(TaskKey(run.key.namespace, run.key.name, "replica", 0, 1), need=need)


class Engine:
    """Returns a fixed usage, or raises an error, once the test releases it."""

    def __init__(self):
        self.asked, self.let, self.error = [], asyncio.Event(), None

    async def usage(self, keys):
        self.asked.append(list(keys))
        await self.let.wait()
        if self.error:
            raise self.error
        return {key: TaskUsage(1.0, GIB, 0.5) for key in keys}


class Clock:
    time = 100.0

    def now(self):
        return self.time


def test_use_is_told_of_what_was_given_or_of_the_limit():
    used = TaskUsage(1.0, GIB, 0.5)
    use = part_of(*running(), used, 7.0)
    assert (use.time, use.cpu, use.gpu, use.memory) == (7.0, 0.5, 0.5, 0.25)
    limited = part_of(*running(limits={"cpu": "4", "memory": "2Gi"}), used, 7.0)
    assert (limited.cpu, limited.memory) == (0.25, 0.5)


def test_a_shared_gpu_says_nothing_and_so_does_nothing_given():
    run, task = running()
    shared = replace(task, need=TaskNeed(gpus=1, gpu_milli=250))
    use = part_of(run, shared, TaskUsage(1.0, GIB, 0.5), 7.0)
    assert (use.cpu, use.gpu, use.memory) == (None, None, None)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 10**400, True])
def test_use_that_makes_no_sense_is_not_known(value):
    use = part_of(*running(), TaskUsage(value, value, value), 7.0)
    assert (use.cpu, use.gpu, use.memory) == (None, None, None)


async def test_it_asks_now_and_then_and_never_twice_at_once():
    engine, clock = Engine(), Clock()
    watch = ReplicaUsageSampler(engine, clock)
    run, task = running()
    watch.look({"a": (run, task)})
    clock.time += 2 * EVERY
    watch.look({"a": (run, task)})
    await asyncio.sleep(0)
    assert len(engine.asked) == 1
    engine.let.set()
    await watch._asking
    assert watch.seen["a"].cpu == 0.5
    watch.look({"a": (run, task)})
    await watch._asking
    assert len(engine.asked) == 2
    watch.look({"a": (run, task)})
    await watch.close()
    assert len(engine.asked) == 2


async def test_an_engine_that_fails_leaves_what_was_known(caplog):
    engine, clock = Engine(), Clock()
    watch = ReplicaUsageSampler(engine, clock)
    engine.error = OSError("no /proc")
    engine.let.set()
    watch.look({"a": running()})
    await watch._asking
    assert watch.seen == {}
    assert "no /proc" in caplog.text


async def test_an_error_that_was_not_foreseen_is_logged_and_the_next_look_succeeds(caplog):
    engine, clock = Engine(), Clock()
    watch = ReplicaUsageSampler(engine, clock)
    engine.error = ZeroDivisionError("boom")
    engine.let.set()
    watch.look({"a": running()})
    await watch._asking
    assert "boom" in caplog.text
    engine.error, clock.time = None, clock.time + EVERY
    watch.look({"a": running()})
    await watch._asking
    assert watch.seen["a"].cpu == 0.5


@pytest.mark.parametrize("known", [True, False])
async def test_a_run_that_ended_meanwhile_is_left_out(known):
    engine, clock = Engine(), Clock()
    watch = ReplicaUsageSampler(engine, clock)
    run, task = running()
    engine.let.set()
    watch.look({"a": (run, task)} if known else {})
    if known:
        await watch._asking
    assert list(watch.seen) == (["a"] if known else [])
    await watch.close()
