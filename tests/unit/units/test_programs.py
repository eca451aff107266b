"""Which commands start ranks by themselves."""

from __future__ import annotations

import shlex

import pytest

from fairway.units.programs import Starter, starter_at, starter_in_script, starter_of


@pytest.mark.parametrize(
    ("command", "starter"),
    [
        ("torchrun train.py", Starter.TORCHRUN),
        ("/venv/bin/torchrun --nnodes 2 train.py", Starter.TORCHRUN),
        ("python -m torch.distributed.run train.py", Starter.TORCHRUN),
        ("python3.11 -u -X dev -m torch.distributed.launch train.py", Starter.TORCHRUN),
        ("python /venv/bin/torchrun train.py", Starter.TORCHRUN),
        ("accelerate launch train.py", Starter.ACCELERATE),
        ("accelerate-launch train.py", Starter.ACCELERATE),
        ("python -m accelerate.commands.launch train.py", Starter.ACCELERATE),
        ("mpirun -n 2 ./a.out", Starter.MPI),
        ("mpiexec.hydra -n 2 ./a.out", Starter.MPI),
        ("deepspeed train.py", Starter.DEEPSPEED),
        ("env -u X A=1 B='x y' torchrun train.py", Starter.TORCHRUN),
        ("nice -n 5 stdbuf -oL torchrun train.py", Starter.TORCHRUN),
        ("timeout -k 5 60 torchrun train.py", Starter.TORCHRUN),
        ("uv run --with torch torchrun train.py", Starter.TORCHRUN),
        ("conda run -n env torchrun train.py", Starter.TORCHRUN),
        ("bash -c 'cd src && torchrun train.py'", Starter.TORCHRUN),
        ("bash -c 'exec torchrun train.py'", Starter.TORCHRUN),
        ("bash -euc 'A=1 torchrun train.py'", Starter.TORCHRUN),
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
    assert starter_at(argv) == (Starter.ACCELERATE, place)


@pytest.mark.parametrize(
    ("script", "starter"),
    [
        ("set -x\nexport A=1\nOMP_NUM_THREADS=1 torchrun \\\n  --nnodes 2 train.py\n", Starter.TORCHRUN),
        ("# torchrun is not used\npython train.py  # torchrun\n", None),
        ("(cd src; mpirun ./a.out) | tee log\n", Starter.MPI),
        ("echo 'a && torchrun b'\n", None),
        ("cat <<E\nit's\nE\nmpirun ./a.out\n", Starter.MPI),
        ("", None),
    ],
)
def test_scripts(script, starter):
    assert starter_in_script(script) is starter
