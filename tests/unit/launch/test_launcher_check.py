"""Launchers called by a document: found in commands, scripts and script files, and refused where they cannot join."""

from __future__ import annotations

import pytest

from fairway.errors import RefusedError
from fairway.launch.launcher_check import examine
from fairway.spec.job import JobSpec, TrainingFramework
from fairway.state.launcher import framework_of
from fairway.units.launcher import LauncherScript


def spec_of(command="", replicas=2, script="", gpu=None, **more):
    words = tuple(command.split())
    role = {"replicas": {"min": replicas, "max": replicas}, **({"script": script} if script else {"command": words})}
    if gpu:
        role["resources"] = {"gpu": gpu}
    return JobSpec.model_validate({"roles": {"worker": role}, **more})


def reads(**files: str):
    """Return a reader of these files; in a keyword, a dot is written as two underscores."""

    def read(file: LauncherScript) -> str | None:
        return files.get(file.path.removeprefix("./").replace(".", "__"))

    return read


@pytest.mark.parametrize("command", ["bash train.sh", "env A=1 bash -eu train.sh 1", "./train.sh", "bash -o pipefail train.sh"])
@pytest.mark.parametrize(
    ("text", "starter"),
    [
        ("set -e\ntorchrun train.py\n", "torchrun"),
        ("cd src\nif true; then\n  exec torchrun train.py; fi", "torchrun"),
        ("python prepare.py && mpirun -n 2 python train.py", "mpi"),
        ('LAUNCHER="torchrun --nnodes 2"\n$LAUNCHER train.py', "torchrun"),
        ("${PYTHON:-python} -m torch.distributed.run train.py", "torchrun"),
        ("bash inner.sh", "torchrun"),
        ("source ./inner.sh", "torchrun"),
    ],
)
def test_a_launcher_is_found_in_a_script_file(command, text, starter):
    found = examine(spec_of(command), reads(train__sh=text, inner__sh="torchrun train.py"))
    assert found.starters == {"worker": starter}


@pytest.mark.parametrize(
    "text", ["python train.py", "echo torchrun", "# torchrun train.py", "cat <<E\n", "bash train.sh", "NAME=torch python x.py"]
)
def test_a_script_without_one_has_none(text):
    assert examine(spec_of("bash train.sh"), reads(train__sh=text)).starters == {}


def test_only_one_level_of_scripts_is_followed():
    files = reads(a__sh="bash b.sh", b__sh="bash c.sh", c__sh="torchrun train.py")
    assert examine(spec_of("bash a.sh"), files).starters == {}
    assert examine(spec_of("bash b.sh"), files).starters == {"worker": "torchrun"}


@pytest.mark.parametrize("command", ["deepspeed train.py", "bash train.sh"])
def test_deepspeed_in_several_replicas_is_refused(command):
    files = reads(train__sh="deepspeed train.py")
    with pytest.raises(RefusedError, match="train alone") as caught:
        examine(spec_of(command, gpu="2"), files)
    assert "-w 1 --gpus 4" in str(caught.value.fix)
    assert examine(spec_of(command, replicas=1), files).starters == {"worker": "deepspeed"}
    assert examine(spec_of(command, framework="command"), files).cautions == ()


@pytest.mark.parametrize(("flags", "joins"), [("", False), ("--cpu ", True), ("--config_file x.yaml ", True)])
def test_accelerate_in_a_script_needs_a_flag_without_gpus(flags, joins):
    files = reads(train__sh=f"accelerate launch {flags}train.py")
    if joins:
        assert examine(spec_of("bash train.sh"), files).starters == {"worker": "accelerate"}
    else:
        with pytest.raises(RefusedError, match="accelerate launch"):
            examine(spec_of("bash train.sh"), files)
    assert examine(spec_of("bash train.sh", gpu="1"), files).starters
    assert examine(spec_of("accelerate launch train.py"), files).starters


@pytest.mark.parametrize(
    ("flags", "apart"),
    [
        ("--standalone", True),
        ("--nproc-per-node 2 --nnodes=1", True),
        ("--nnodes 1", True),
        ("--nnodes 2", False),
        ("", False),
    ],
)
def test_a_torchrun_that_would_not_join_is_refused(flags, apart):
    command = f"torchrun {flags} train.py --standalone"
    for spec in (spec_of(command), spec_of("bash t.sh")):
        if apart:
            with pytest.raises(RefusedError, match="which keeps each of them alone"):
                examine(spec, reads(t__sh=command))
        else:
            assert examine(spec, reads(t__sh=command)).starters == {"worker": "torchrun"}
    assert examine(spec_of(command, replicas=1), reads()).starters == {"worker": "torchrun"}
    assert examine(spec_of(command, framework="command"), reads()).starters == {"worker": "torchrun"}


def test_mpirun_in_several_workers_is_one_world():
    by_command = spec_of("mpirun -n 3 python train.py", replicas=3)
    assert framework_of(by_command, examine(by_command, reads()).starters) is TrainingFramework.MPI
    by_file = spec_of("bash train.sh", replicas=3)
    assert framework_of(by_file, examine(by_file, reads(train__sh="mpirun python x.py")).starters) is TrainingFramework.MPI
    assert framework_of(spec_of("mpirun python x.py", replicas=1), {}) is TrainingFramework.AUTO


def test_mpirun_in_a_role_among_others_is_told_before_the_start():
    roles = {name: {"command": ("mpirun", "x"), "replicas": {"min": 2, "max": 2}} for name in ("worker", "ps")}
    (first, _) = examine(JobSpec.model_validate({"roles": roles}), reads()).cautions
    assert "starts 2 separate MPI jobs" in first


@pytest.mark.parametrize(
    ("text", "starters"),
    [("import lightning as L", {"worker": "lightning"}), ("from pytorch_lightning import Trainer", {"worker": "lightning"}),
     ("import torch  # lightning fast", {})],
)  # fmt: skip
def test_a_program_of_lightning_is_recognised(text, starters):
    assert examine(spec_of("python train.py --x 1"), reads(train__py=text)).starters == starters
