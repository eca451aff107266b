"""`fairway simulate`: its input, its output, and its errors for wrong arguments."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
import yaml

from fairway.cli.main import main
from fairway.simulation import simulation_run
from fairway.spec.job import TaskRole
from fairway.spec.resource import ResourceAmounts
from fairway.state.node import ClusterNode, NodeDevice
from fairway.state.phase import JobPhase
from fairway.testing.builder.job_builder import a_job
from fairway.testing.fake.fake_daemon import DaemonRequestRecord, FakeDaemon
from fairway.views.job import JobList, job_view
from fairway.views.node import NodeList, node_view

Shown = pytest.CaptureFixture[str]
TRACES = Path(__file__).parents[6] / "shared" / "traces"
MARKS = ("95", "100", "110", "120", "130")


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small cluster with pods for it, and a small queue."""
    with (tmp_path / "nodes.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["sn", "cpu_milli", "memory_mib", "gpu", "model"])
        lines.writerows([f"n{number}", 32000, 65536, 4, "A"] for number in range(6))
    with gzip.open(tmp_path / "pods.csv.gz", "wt", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"])
        lines.writerows([f"p{number:02}", 1000, 1024, 1, (300, 500, 1000)[number % 3], ""] for number in range(30))
    (tmp_path / "order.json").write_text(json.dumps({"pods": [*range(30)] * 2, "node_rank": [5, 4, 3, 2, 1, 0]}))
    with (tmp_path / "jobs.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["submit_s", "gpus", "duration_s", "model"])
        lines.writerows([60 * number, (1, 2, 8)[number % 3], 600 + 10 * number, "m"] for number in range(50))
    monkeypatch.chdir(tmp_path)
    return tmp_path


PLACE = ["simulate", "placement", "--nodes", "nodes.csv", "--pods", "pods.csv.gz"]
QUEUE = ["simulate", "queue", "--trace", "jobs.csv", "--nodes", "2x8"]


@pytest.mark.usefixtures("traces")
def test_placement_as_json(capsys: Shown) -> None:
    assert main([*PLACE, "--order", "order.json", "--policy", "best-fit", "-o", "json"]) == 0
    shown = capsys.readouterr()
    data = json.loads(shown.out)
    assert shown.err == ""
    assert {"policy", "curve", "decisions_per_second", "p99_us"} <= set(data)
    assert (data["policy"], data["nodes"], data["gpus"], data["mix"]) == ("best-fit", 6, 24, "given")
    assert data["curve"]["75"] == pytest.approx(75.0, abs=1.0)


@pytest.mark.usefixtures("traces")
def test_policies_side_by_side(capsys: Shown) -> None:
    asked = [*PLACE, "--order", "order.json", "--policy", "fgd", "--policy", "fairway", "--mix", "learned"]
    assert main([*asked, "-o", "json"]) == 0
    assert [one["policy"] for one in json.loads(capsys.readouterr().out)["policies"]] == ["fgd", "fairway"]
    assert main([*asked, "-o", "yaml"]) == 0
    assert [one["mix"] for one in yaml.safe_load(capsys.readouterr().out)["policies"]] == ["learned", "learned"]
    assert main([*asked, "-o", "name"]) == 0
    assert capsys.readouterr().out == "fgd\nfairway\n"
    assert main(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["POLICY", "fgd", "fairway"]


@pytest.mark.usefixtures("traces")
def test_other_nodes_and_an_order_that_is_drawn(capsys: Shown) -> None:
    asked = [*PLACE, "--policy", "random", "--seed", "7", "-o", "json"]
    assert main([*asked, "--add-nodes", "2x4", "--remove-nodes", "1"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["nodes"], data["gpus"], data["policy"]) == (7, 28, "random:7")
    assert max(map(int, data["curve"])) >= 105
    assert main([*PLACE, "--order", "order.json", "--add-nodes", "1", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["nodes"] == 7


@pytest.mark.usefixtures("traces")
def test_pods_that_come_and_go(capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    few = simulation_run.churn_experiment.churn
    monkeypatch.setattr(simulation_run.churn_experiment, "churn", lambda *given, **named: few(*given, **{**named, "count": 500}))
    assert main([*PLACE, "--churn", "1.2", "--seed", "3", "-o", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["policy"], data["load"], data["seed"]) == ("fairway", 1.2, 3)
    assert 50 < data["allocation"] <= 100
    assert main([*PLACE, "--churn", "1.2", "--report", "churn.html"]) == 0
    assert "GPUs allocated over time" in Path("churn.html").read_text()


@pytest.mark.usefixtures("traces")
def test_a_queue_as_json_and_with_more_nodes(capsys: Shown) -> None:
    assert main([*QUEUE, "--policy", "fifo", "-o", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    wanted = {"policy", "average_jct_h", "median_jct_h", "p99_jct_h", "average_wait_h", "utilisation", "preemptions"}
    assert wanted <= set(data)
    assert (data["jobs"], data["nodes"], data["gpus_per_node"]) == (50, 2, 8)
    assert main([*QUEUE, "--policy", "fifo", "--add-nodes", "6", "-o", "json"]) == 0
    more = json.loads(capsys.readouterr().out)
    assert more["nodes"] == 8
    assert more["average_jct_h"] < data["average_jct_h"]


@pytest.mark.usefixtures("traces")
def test_a_report_is_one_sound_file(capsys: Shown) -> None:
    assert main([*QUEUE, "--policy", "fairway", "--policy", "fifo", "--report", "out.html"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "the report is in out.html\n"
    page = ElementTree.parse("out.html")
    assert len(list(page.iter("{http://www.w3.org/2000/svg}svg"))) == 3
    assert main([*QUEUE, "--report", "gone/out.html"]) == 2
    assert "--report gone/out.html: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ([*PLACE, "--policy", "fairwy"], "--policy fairwy: there is no such policy\n  fix: did you mean `fairway`?"),
        ([*QUEUE, "--policy", "fgd"], "--policy fgd: there is no such policy\n  fix: use one of"),
        (["simulate", "placement", "--pods", "pods.csv.gz"], "needs --nodes\n  fix: add --nodes N.csv"),
        ([*PLACE, "--order", "oder.json"], "there is no such file\n  fix: did you mean `order.json`?"),
        ([*PLACE, "--order", "wrong.json"], "the order names pod 99, but there are only 30"),
        ([*PLACE, "--order", "nodes.csv"], "nodes.csv:1:1: is not valid JSON"),
        (["simulate", "placement", "--nodes", "jobs.csv", "--pods", "pods.csv.gz"], "jobs.csv:1: has no column sn; the first"),
        ([*PLACE, "--mix", "lerned"], "fix: write --mix learned"),
        ([*PLACE, "--churn", "much"], "--churn much: a number is needed"),
        ([*PLACE, "--add-nodes", "1x3"], "no node has 3 GPUs"),
        (["simulate", "queue", "--nodes", "2x8"], "needs a trace or a history"),
        ([*QUEUE, "--history"], "needs a trace or a history"),
        (["simulate", "queue", "--trace", "jobs.csv"], "needs --nodes"),
        (["simulate", "queue", "--trace", "jobs.csv", "--nodes", "many"], "is not nodes x GPUs"),
        (["simulate", "queues"], "did you mean queue?"),
    ],
)
def test_mistakes_are_told_with_their_place_and_the_fix(typed: list[str], said: str, traces: Path, capsys: Shown) -> None:
    (traces / "wrong.json").write_text('{"pods": [99]}')
    assert main(typed) == 2
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("traces")
def test_a_job_that_no_machine_could_hold_is_refused(capsys: Shown) -> None:
    assert main(["simulate", "queue", "--trace", "jobs.csv", "--nodes", "1x4"]) == 5
    assert "requests 8 GPUs" in capsys.readouterr().err


def a_history(asked: DaemonRequestRecord) -> bytes:
    """Two pages of finished runs."""
    roles = {"worker": TaskRole(command=("train",), resources=ResourceAmounts(gpu="2"))}
    found = []
    for number in (1, 2):
        job = a_job(name=f"{'ab'[number - 1]}-{number}", roles=roles, attempt=number - 1)
        job = msgspec.structs.replace(job_view(job, [], 0.0, tasks_too=False), phase=JobPhase.SUCCEEDED)
        found.append(msgspec.structs.replace(job, created=100.0 * number, started=200.0, finished=500.0))
    one = found[1] if asked.query.get("before") else found[0]
    following = "" if asked.query.get("before") else "cursor"
    return msgspec.json.encode(JobList((one,), following, 2))


def test_a_history_of_ones_own_is_played(
    daemon: FakeDaemon, capsys: Shown, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    devices = tuple(NodeDevice(f"g{index}", index) for index in range(4))
    here = msgspec.json.encode(NodeList((node_view(ClusterNode("here", 8.0, 8 << 30, devices), []),)))
    daemon.answers["GET /v1/jobs"] = a_history
    daemon.answers["GET /v1/jobs/b-2"] = lambda _: msgspec.json.encode(
        msgspec.json.decode(a_history(DaemonRequestRecord("GET", "", {"before": "x"}, b"")))["jobs"][0]
    )
    daemon.answers["GET /v1/nodes"] = here
    assert main(["simulate", "queue", "--history", "--policy", "fifo", "-o", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["jobs"], data["nodes"], data["gpus_per_node"]) == (2, 1, 4)
    assert data["average_jct_h"] == pytest.approx(300 / 3600, abs=1e-4)
    first, second = daemon.of("GET", "/v1/jobs")
    assert first.query["namespace"] == "*"
    assert second.query["before"] == "cursor"
    assert daemon.of("GET", "/v1/jobs/b-2")[0].query["namespace"] == "default"
    assert main(["simulate", "queue", "--history", "--nodes", "3x8", "--add-nodes", "1", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["nodes"] == 4


def test_a_history_without_gpus_says_so(
    daemon: FakeDaemon, capsys: Shown, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    job = msgspec.structs.replace(job_view(a_job(), [], 0.0, tasks_too=False), started=1.0, finished=2.0)
    daemon.answers["GET /v1/jobs"] = msgspec.json.encode(JobList((job,), "", 1))
    assert main(["simulate", "queue", "--history"]) == 2
    stderr = capsys.readouterr().err
    assert "left out: 1 runs without a GPU" in stderr
    assert "no finished run of this home asked for a GPU" in stderr


@pytest.mark.parametrize("typed", [["--help"], ["simulate", "--help"], ["simulate", "queue", "--help"]])
def test_help_does_not_load_the_simulator(typed: list[str]) -> None:
    program = (
        f"import sys; from fairway.cli.main import main; main({typed!r})\n"
        "print(*[name for name in sys.modules if name == 'numpy' or name.startswith('fairway.simulation')], file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stderr == "\n"


needs_traces = pytest.mark.skipif(
    not TRACES.is_dir() and os.environ.get("CI") != "true", reason="needs the published traces in ../shared/traces"
)


@needs_traces
def test_the_published_experiment_comes_out_as_published(capsys: Shown) -> None:
    folder = TRACES / "openb"
    files = ["--nodes", folder / "nodes.csv", "--pods", folder / "pods-default.csv.gz"]
    order = ["--order", folder / "orders" / "default-42.json.gz"]
    assert main(["simulate", "placement", *map(str, files + order), "--policy", "best-fit", "-o", "json"]) == 0
    curve = json.loads(capsys.readouterr().out)["curve"]
    assert {mark: round(curve[mark], 2) for mark in ("100", "130")} == {"100": 92.94, "130": 93.13}
    assert set(MARKS) <= set(curve)


@needs_traces
def test_a_recorded_queue_is_played(capsys: Shown) -> None:
    assert (
        main(
            [
                "simulate",
                "queue",
                "--trace",
                str(TRACES / "philly" / "b436b2.csv"),
                "--nodes",
                "12x8",
                "--policy",
                "fifo",
                "-o",
                "json",
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["average_jct_h"] == pytest.approx(84.1, abs=0.1)


ROOT = Path(__file__).parents[5]
PAGE = (ROOT / "docs" / "simulate.md").read_text()
SHOWN = [line.split() for line in PAGE.split("```console\n")[1].split("```")[0].splitlines()]


def test_the_page_has_commands() -> None:
    assert {words[2] for words in SHOWN} == {"placement", "queue"}


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_the_commands_of_the_page_work_from_a_clone(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Shown
) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    assert words[0] == "fairway"
    assert main(words[1:]) == 0
    assert "fairway" in capsys.readouterr().out
    if "--report" in words:
        assert "<svg" in (tmp_path / words[words.index("--report") + 1]).read_text()


def test_nothing_is_promised_that_does_not_exist() -> None:
    texts = [ROOT / "README.md", *(path for path in (ROOT / "docs").rglob("*.md") if path.name != "architecture.md")]
    assert [path.name for path in texts if re.search(r"\btun(e|ing)\b", path.read_text())] == []
    shown = subprocess.run([sys.executable, "-m", "fairway", "--help"], capture_output=True, text=True, check=True)
    assert "tune" not in shown.stdout
