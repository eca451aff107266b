from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fairway.errors import FairwayError, SpecError, UsageError
from fairway.plan.scheduling.workload_mix import WorkloadMix
from fairway.simulation import input_file
from fairway.simulation.queue.recorded_job import RecordedJob

JOBS = "submit_s,gpus,duration_s\n5,2,10\n0,1,20\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np1,1000,1,1,500,\n"


def test_a_recorded_queue_may_be_compressed(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS)
    with gzip.open(tmp_path / "jobs.csv.gz", "wt") as file:
        file.write(JOBS)
    wanted = [RecordedJob(0.0, 1, 20.0), RecordedJob(5.0, 2, 10.0)]
    assert input_file.read_jobs(str(tmp_path / "jobs.csv")) == wanted == input_file.read_jobs(str(tmp_path / "jobs.csv.gz"))


def test_a_mix_is_a_word_or_a_list_of_pods(tmp_path: Path) -> None:
    (tmp_path / "pods.csv").write_text(PODS)
    assert input_file.read_mix("learned") == "learned"
    mix = input_file.read_mix(str(tmp_path / "pods.csv"))
    assert isinstance(mix, WorkloadMix)
    assert mix.total == 1
    with pytest.raises(UsageError, match="write --mix learned"):
        input_file.read_mix("learnd")


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("")
    with pytest.raises(UsageError, match=r"did you mean `nodes\.csv`"):
        input_file.read_nodes(str(tmp_path / "node.csv"))
    with pytest.raises(UsageError, match="there is no folder"):
        input_file.read_nodes(str(tmp_path / "gone" / "nodes.csv"))


def test_every_missing_column_is_told_of_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("sn,cpu_mili,memory_mib\na,1,1\n")
    with pytest.raises(SpecError) as caught:
        input_file.read_nodes(str(path))
    told = [str(mistake) for mistake in caught.value.mistakes]
    assert told == [
        f"{path}:1: has no column cpu_milli; rename the column cpu_mili if it is meant",
        f"{path}:1: has no column gpu; the first line must name sn, cpu_milli, memory_mib, gpu",
    ]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("o.json", b"{oops", "o.json:1:2: is not valid JSON"),
        ("o.json", b"[1, 2]", "has no list `pods`"),
        ("o.json.gz", b"{}", "truncated, or not compressed"),
        ("o.json", b"\xff\xfe\x00", "is not a text file"),
    ],
)
def test_a_wrong_order_is_refused(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FairwayError, match=said):
        input_file.read_order(str(tmp_path / name))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        input_file.read_pods(str(tmp_path))
