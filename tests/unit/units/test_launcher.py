"""Which commands start ranks by themselves."""

from __future__ import annotations

import shlex

import pytest

from fairway.units.launcher import Launcher, starter_at, starter_in_script, starter_of


@pytest.mark.parametrize(
    ("command", "starter"),
    [
        ("torchrun train.py", Launcher.TORCHRUN),
        ("/venv/bin/torchrun --nnodes 2 train.py", Launcher.TORCHRUN),
        ("python -m torch.distributed.run train.py", Launcher.TORCHRUN),
        ("python3.11 -u -X dev -m torch.distributed.launch train.py", Launcher.TORCHRUN),
        ("python /venv/bin/torchrun train.py", Launcher.TORCHRUN),
        ("accelerate launch train.py", Launcher.ACCELERATE),
        ("accelerate-launch train.py", Launcher.ACCELERATE),
        ("python -m accelerate.commands.launch train.py", Launcher.ACCELERATE),
        ("mpirun -n 2 ./a.out", Launcher.MPI),
        ("mpiexec.hydra -n 2 ./a.out", Launcher.MPI),
        ("deepspeed train.py", Launcher.DEEPSPEED),
        ("env -u X A=1 B='x y' torchrun train.py", Launcher.TORCHRUN),
        ("nice -n 5 stdbuf -oL torchrun train.py", Launcher.TORCHRUN),
        ("timeout -k 5 60 torchrun train.py", Launcher.TORCHRUN),
        ("uv run --with torch torchrun train.py", Launcher.TORCHRUN),
        ("conda run -n env torchrun train.py", Launcher.TORCHRUN),
        ("bash -c 'cd src && torchrun train.py'", Launcher.TORCHRUN),
        ("bash -c 'exec torchrun train.py'", Launcher.TORCHRUN),
        ("bash -euc 'A=1 torchrun train.py'", Launcher.TORCHRUN),
        ("python train.py", None),
        ("python train.py torchrun", None),
        ("python -c 'import torch' -m torch.distributed.run", None),
        ("python -m mypackage.torchrun", None),
        ("accelerate config", None),
        ("accelerate", None),
        ("echo torchrun", None),
        ("env", None),
        ("nice", None),
        ("bash torchrun.sh", None),
        ("uv pip install torchrun", None),
    ],
)
def test_commands(command, starter):
    argv = shlex.split(command)
    assert starter_of(argv) is starter


def test_nothing_to_run_starts_nothing():
    assert starter_of(()) is None


@pytest.mark.parametrize(
    ("argv", "place"),
    [
        (("accelerate", "launch", "t.py"), 2),
        (("nice", "python", "-m", "accelerate.commands.launch", "t.py"), 4),
        (("python", "-m", "accelerate", "launch", "t.py"), 4),
        (("sh", "-c", "accelerate launch t.py"), 3),
    ],
)
def test_where_the_starters_own_arguments_begin(argv, place):
    assert starter_at(argv) == (Launcher.ACCELERATE, place)


@pytest.mark.parametrize(
    ("script", "starter"),
    [
        ("set -x\nexport A=1\nOMP_NUM_THREADS=1 torchrun \\\n  --nnodes 2 train.py\n", Launcher.TORCHRUN),
        ("# torchrun is not used\npython train.py  # torchrun\n", None),
        ("(cd src; mpirun ./a.out) | tee log\n", Launcher.MPI),
        ("echo 'a && torchrun b'\n", None),
        ("cat <<E\nit's\nE\nmpirun ./a.out\n", Launcher.MPI),
        ("", None),
    ],
)
def test_scripts(script, starter):
    assert starter_in_script(script) is starter
