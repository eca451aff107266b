"""Local ranks: counted per node where no device depends on them, per task where one does."""

from __future__ import annotations

import pytest

from fairway.launch.rank_position import RankPosition
from fairway.launch.topology import GangMember, GangTopology, TaskFolders
from fairway.spec.job import JobSpec

FOLDERS = TaskFolders(work="", attempt="", shared="", checkpoints="", tensorboard="")
NAMES = ("node_local_rank", "node_local_world_size", "node_rank", "node_count")


def seats(*members: GangMember, framework: str = "auto") -> list[RankPosition]:
    roles = {member.role: {"command": ("python", "t.py"), "replicas": {"min": 1, "max": 9}} for member in members}
    spec = JobSpec.model_validate({"roles": roles, "framework": framework})
    topology = GangTopology("mnist-7", "default", members)
    return [RankPosition("mnist-7", spec, topology, each, FOLDERS, local) for each in members for local in range(each.processes)]


def worker(
    index: int, host: str = "127.0.0.1", processes: int = 1, devices: tuple[str, ...] = (), role: str = "worker"
) -> GangMember:
    return GangMember(role, index, host, (1, 2, 3, 4), processes, devices=devices)


def places(*members: GangMember) -> list[tuple[int, ...]]:
    return [tuple(getattr(seat, name) for name in NAMES) for seat in seats(*members)]


def test_workers_of_one_machine_without_gpus_are_counted_together():
    assert places(worker(0), worker(1)) == [(0, 2, 0, 1), (1, 2, 0, 1)]
    assert places(worker(0, processes=2), worker(1)) == [(0, 3, 0, 1), (1, 3, 0, 1), (2, 3, 0, 1)]


def test_a_worker_that_sees_its_own_gpu_alone_is_local_rank_0():
    assert places(worker(0, devices=("a",)), worker(1, devices=("b",))) == [(0, 1, 0, 2), (0, 1, 1, 2)]
    assert places(worker(0, devices=("a",)), worker(1)) == [(0, 1, 0, 2), (0, 1, 1, 2)]


def test_workers_that_share_a_gpu_all_use_it():
    assert places(worker(0, devices=("a",)), worker(1, devices=("a",))) == [(0, 1, 0, 2), (0, 1, 1, 2)]


def test_workers_that_all_see_all_gpus_are_counted_together():
    both = ("a", "b")
    assert places(worker(0, devices=both), worker(1, devices=both)) == [(0, 2, 0, 1), (1, 2, 0, 1)]


def test_a_pod_is_a_node_of_its_own():
    assert places(worker(0, "pod-0"), worker(1, "pod-1", 2)) == [(0, 1, 0, 2), (0, 2, 1, 2), (1, 2, 1, 2)]
    assert places(worker(0, "a"), worker(1, "b"), worker(2, "a")) == [(0, 2, 0, 2), (0, 1, 1, 2), (1, 2, 0, 2)]


@pytest.mark.parametrize(
    ("members", "framework", "firsts"),
    [
        ([worker(0), worker(1)], "auto", [True, False]),
        ([worker(0, devices=("a",)), worker(1, devices=("b",))], "auto", [True, False]),
        ([worker(0, "a"), worker(1, "b"), worker(2, "a")], "auto", [True, True, False]),
        ([worker(0, role="ps"), worker(0), worker(1)], "auto", [False, True, False]),
        ([worker(0, "a", role="ps"), worker(0, "b")], "auto", [True, True]),
        ([worker(0, role="launcher"), worker(0), worker(1)], "mpi", [True, False, False]),
    ],
)
def test_one_task_of_a_host_is_its_first(members, framework, firsts):
    assert [seat.first_on_node for seat in seats(*members, framework=framework)] == firsts
