"""Every value survives encoding and decoding unchanged."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fairway.spec.job import CodeSource, JobSpec, RestartPolicy, RoleReplicas, StopPolicy, TaskRole, TrainingFramework
from fairway.spec.resource import ResourceAmounts
from fairway.state.job import JobKey, JobState, ResumePoint, RunOutcome, RunProgress, SubmissionOrigin, WaitReason
from fairway.state.phase import JobPhase, RunIntent, TaskPhase
from fairway.state.queue import Queue
from fairway.state.task import Task, TaskExit, TaskKey, TaskNeed
from fairway.stores.sqlite import codec

texts = st.text(max_size=12)
names = st.from_regex(r"[a-z]([a-z0-9-]{0,6}[a-z0-9])?", fullmatch=True)
variables = st.from_regex(r"[A-Z_][A-Z0-9_]{0,6}", fullmatch=True)
floats = st.floats(allow_nan=False)
counts = st.integers(-(2**63), 2**63 - 1)
small = st.integers(0, 10_000)
maybe = st.none()
metrics = st.dictionaries(texts, floats, max_size=3)


def _few(keys: st.SearchStrategy[str], values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(keys, values, max_size=3)


roles = st.builds(
    TaskRole,
    replicas=st.integers(1, 9).map(lambda number: RoleReplicas(min=number, max=number + 1)),
    processes=st.integers(0, 8),
    command=st.lists(texts.filter(bool), min_size=1, max_size=3).map(tuple),
    env=_few(variables, texts),
    resources=st.builds(
        ResourceAmounts,
        cpu=maybe | st.sampled_from(["1", "500m", "0.25"]),
        memory=maybe | st.just("2Gi"),
        gpu=maybe | st.just("1"),
        gpu_type=st.lists(texts, max_size=2).map(tuple),
        other=_few(texts, small),
    ),
)
specs = st.builds(
    JobSpec,
    framework=st.sampled_from(TrainingFramework),
    code=st.builds(CodeSource, path=texts, in_place=st.booleans()),
    env=_few(variables, texts),
    secrets=st.lists(variables, max_size=2).map(tuple),
    data=_few(names, texts),
    roles=st.dictionaries(names, roles, min_size=1, max_size=2),
    stop=st.builds(StopPolicy, at_step=maybe | st.integers(1, 9), when=st.sampled_from(["", "accuracy >= 0.98"])),
    timeout=maybe | st.just("1h30m"),
    restart=st.builds(RestartPolicy, max=st.integers(0, 9)),
    kubernetes=st.just({"pod": {"tolerations": [{"key": "a", "operator": "Exists"}], "deep": {"x": [1, 2.5, None, True]}}}),
)
jobs = st.builds(
    JobState,
    key=st.builds(JobKey, names, names),
    series=names,
    number=small,
    spec=specs,
    origin=st.builds(SubmissionOrigin, texts, texts, texts, texts, st.booleans(), st.booleans()),
    labels=_few(texts, texts),
    intent=st.sampled_from(RunIntent),
    phase=st.sampled_from(JobPhase),
    attempt=small,
    restarts=small,
    sizes=_few(names, small),
    not_before=maybe | floats,
    created=floats,
    started=maybe | floats,
    finished=maybe | floats,
    hold=maybe | st.builds(WaitReason, texts, texts, texts, floats),
    outcome=maybe | st.builds(RunOutcome, texts, texts, texts, maybe | small),
    resume=maybe | st.builds(ResumePoint, maybe | counts, maybe | floats),
    progress=st.builds(RunProgress, maybe | counts, metrics, maybe | floats, maybe | floats, maybe | counts, maybe | floats),
    last_failure=texts,
    memory_factor=floats,
    ending=maybe | st.sampled_from(JobPhase),
    nudged=maybe | floats,
    deleting=st.booleans(),
)
tasks = st.builds(
    Task,
    key=st.builds(TaskKey, names, names, names, small, small),
    phase=st.sampled_from(TaskPhase),
    need=st.builds(TaskNeed, floats, counts, small, small, counts, st.lists(texts, max_size=2).map(tuple), _few(texts, small)),
    processes=small,
    slots=small,
    ready=st.booleans(),
    node=texts,
    devices=st.lists(texts, max_size=3).map(tuple),
    address=texts,
    created=floats,
    started=maybe | floats,
    finished=maybe | floats,
    exit=maybe
    | st.builds(TaskExit, maybe | small, maybe | small, small, st.booleans(), st.booleans(), texts, texts, maybe | counts),
    message=texts,
    evicting_since=maybe | floats,
)


@given(jobs)
def test_a_run_comes_back(job: JobState) -> None:
    assert codec.unpack_job(codec.pack(job)) == job


@given(tasks)
def test_a_task_comes_back(task: Task) -> None:
    assert codec.unpack_task(codec.pack(task)) == task


@given(st.lists(st.floats()))
def test_numbers_come_back_to_the_bit(values: list[float]) -> None:
    back = codec.unpack_floats(codec.pack_floats(values))
    assert len(back) == len(values)
    for one, other in zip(back, values, strict=True):
        assert (math.isnan(one) and math.isnan(other)) or (one, math.copysign(1, one)) == (other, math.copysign(1, other))


def test_a_task_of_an_older_version_keeps_its_gpus() -> None:
    """GPUs were a single number once: a home with running tasks must not forget the GPUs that they hold."""
    task = Task(TaskKey("default", "mnist-1", "worker", 0, 0), need=TaskNeed(cpu=1.0, gpu_type=("A100",)))
    for count, held in ((0.0, (0, 1000)), (2.0, (2, 1000)), (0.25, (1, 250))):
        kept = msgspec.msgpack.decode(codec.pack(task))
        del kept["need"]["gpus"], kept["need"]["gpu_milli"]
        kept["need"]["gpu"] = count
        found = codec.unpack_task(msgspec.msgpack.encode(kept))
        assert (found.need.gpus, found.need.gpu_milli, found.need.gpu_type) == (*held, ("A100",))


@given(
    st.builds(
        Queue,
        names,
        floats,
        _few(texts, counts),
        _few(texts, counts),
        maybe | floats,
        maybe | counts,
        st.booleans(),
        maybe | floats,
        st.lists(texts, max_size=2).map(tuple),
        maybe | floats,
        counts,
        _few(texts, texts),
        _few(texts, texts),
    )
)
def test_a_queue_comes_back(queue: Queue) -> None:
    assert codec.unpack_queue(codec.pack(queue)) == queue
