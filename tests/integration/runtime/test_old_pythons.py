"""The runtime copy for tasks runs on Python 3.9 and newer, with no packages installed."""

from __future__ import annotations

import ast
import json
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pythons import interpreter

import fairway
from fairway.engines.local.supervision.order import TaskCommand, TaskOrder
from fairway.engines.local.supervision.process.process_start import StandardStreams
from fairway.engines.local.supervision.spare_process import VARIABLE, SpareProcess

SOURCE = Path(fairway.__file__).parent
INJECTED = ("__init__.py", "version.py", "runtime")

SCENARIO = """
import os, pathlib, sys
import fairway
assert fairway.__version__
whole = {"AsyncClient", "Client", "FairwayError"}
for name in set(fairway.__all__) - whole:
    getattr(fairway, name)
for name in whole:
    try:
        getattr(fairway, name)
    except AttributeError as error:
        assert "pip install fairway" in str(error)
    else:
        raise AssertionError(name)
assert fairway.in_job() and fairway.rank() == 0 and fairway.world_size() == 2, fairway.rank()
assert fairway.peers() == {"worker": ["h:1", "h:2"]}
fairway.report(step=1, loss=0.5)
assert fairway.checkpoint.latest() is None
with fairway.checkpoint.save(3, epoch=1) as folder:
    (folder / "model.bin").write_bytes(b"x")
found = fairway.checkpoint.latest(deep=True)
assert found.step == 3 and found.meta == {"epoch": 1}
assert [i for shard in fairway.shards(25, size=10, seed=1, done=[[0, 10]]) for i in sorted(shard)].__len__() == 15
fairway.handle_sigterm()
os.kill(os.getpid(), 15)
assert fairway.should_stop() and fairway.checkpoint.should_checkpoint(4)
outside = [name for name in sys.modules if name.split(".")[0] in ("pydantic", "numpy", "msgspec")]
assert not outside, outside
fairway.requeue()
"""


@pytest.fixture
def injected(tmp_path: Path) -> Path:
    """Return the files that an engine copies into a task."""
    target = tmp_path / "inject" / "fairway"
    target.mkdir(parents=True)
    for name in INJECTED:
        if (SOURCE / name).is_dir():
            shutil.copytree(SOURCE / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(SOURCE / name, target / name)
    return target.parent


def run(python: str, code: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), "PYTHONWARNINGS": "error", **more}
    return subprocess.run([python, "-S", "-c", code], env=variables, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13"])
def test_the_whole_contract_on(version: str, injected: Path, tmp_path: Path) -> None:
    python = interpreter(version)
    more = {"FAIRWAY_JOB": "a-1", "FAIRWAY_RANK": "0", "FAIRWAY_WORLD_SIZE": "2", "FAIRWAY_PEERS": '{"worker": ["h:1", "h:2"]}'}
    for name in ("ATTEMPT", "SHARED", "CHECKPOINT"):
        (tmp_path / name).mkdir()
        more[f"FAIRWAY_{name}_DIR"] = str(tmp_path / name)
    ended = run(python, SCENARIO, injected, **more)
    assert (ended.returncode, ended.stdout, ended.stderr) == (75, "", "")
    assert (tmp_path / "ATTEMPT" / "metrics-0.jsonl").read_text().count("\n") == 1


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13"])
def test_a_program_begins_where_its_interpreter_waited_on(version: str, injected: Path, tmp_path: Path) -> None:
    python = interpreter(version)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "show.py").write_text("import sys, json\nprint(sys.argv, __name__, __file__)\nraise ValueError('x')\n")
    env = {"PATH": os.environ["PATH"]}
    ever = subprocess.run(
        [python, "show.py", "a"], cwd=tmp_path / "work", env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    told = json.dumps({"modules": ["decimal"], "folder": str(tmp_path / "work")})
    waiting = {**env, "PYTHONPATH": str(injected / "fairway/runtime/spare"), VARIABLE: told}
    spare = SpareProcess(
        TaskOrder(task="t", folder="/", cwd=str(tmp_path / "work"), env=waiting, commands=[TaskCommand([python, "show.py", "a"])])
    )
    assert select.select([spare], [], [], 30)[0]
    with (tmp_path / "out").open("ab") as output, open(os.devnull, "rb") as nothing:
        assert spare.become(env, str(tmp_path / "work"), StandardStreams(nothing.fileno(), output.fileno()))
    _, status = os.waitpid(spare.pid, 0)
    assert (os.waitstatus_to_exitcode(status), (tmp_path / "out").read_bytes()) == (1, ever.stdout)


@pytest.mark.parametrize(
    "path",
    [SOURCE / "__init__.py", SOURCE / "version.py", *sorted((SOURCE / "runtime").glob("**/*.py"))],
    ids=lambda path: path.name,
)
def test_the_syntax_is_that_of_python_3_9(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 9))


def test_the_copy_does_not_hide_a_full_install(injected: Path, tmp_path: Path) -> None:
    installed = tmp_path / "site" / "fairway"
    (installed / "sdk").mkdir(parents=True)
    (installed / "__init__.py").write_text("raise RuntimeError('the copy comes first')")
    (installed / "sdk" / "__init__.py").write_text("WHERE = 'full install'")
    imports = "import fairway.sdk; import fairway.runtime; print(fairway.sdk.WHERE, fairway.runtime.__file__)"
    code = f"import sys; sys.path.append({str(tmp_path / 'site')!r}); {imports}"
    ended = run(sys.executable, code, injected)
    assert ended.stdout.split() == ["full", "install", str(injected / "fairway" / "runtime" / "__init__.py")], ended.stderr
