"""Finding a rank's own error in the output of launchers, shells and runtimes. The files of `printed` are real output."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from fairway.runtime.failure.cause import REACH, FailureCause, find

PRINTED = Path(__file__).parent / "printed"

TRACEBACK = """Traceback (most recent call last):
  File "/code/train.py", line 10, in <module>
    main()
  File "/code/train.py", line 7, in main
    raise ValueError("bad label")
ValueError: bad label
"""
THROWN = """terminate called after throwing an instance of 'std::runtime_error'
  what():  no such device
Aborted (core dumped)
"""
FAULT = """Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/code/train.py", line 3
"""
REPORT = """Root Cause (first observed failure):
[0]:
  time      : x
  rank      : 3 (local_rank: 1)
  exitcode  : 1 (pid: 5)
"""
LAUNCHER = """Traceback (most recent call last):
  File "/venv/bin/accelerate", line 8, in <module>
    sys.exit(main())
  File "/venv/lib/python3.11/site-packages/accelerate/commands/launch.py", line 763, in simple_launcher
    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)
subprocess.CalledProcessError: Command '['/venv/bin/python', 'train.py']' returned non-zero exit status 1.
"""


def printed(name: str) -> FailureCause:
    return find((PRINTED / f"{name}.log").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "error", "rank"),
    [
        ("torchrun-error", "RuntimeError: shape mismatch: [3, 4]", 1),
        ("torchrun-chain", "ValueError: bad config", 1),
        ("torchrun-exit2", "fail.py: error: unrecognized arguments: --bad", 1),
        ("torchrun-record", "ZeroDivisionError: division by zero", 1),
        ("torchrun-exit3", "exit code 3", 1),
        ("torchrun-import", "ModuleNotFoundError: No module named 'nonexistent_mod'", 1),
        ("torchrun-kill", "killed by SIGKILL", 1),
        ("torchrun-segv", "killed by SIGSEGV", 1),
        ("mpirun-error", "RuntimeError: shape mismatch: [3, 4]", None),
        ("mpirun-import", "ModuleNotFoundError: No module named 'nonexistent_mod'", None),
        ("mpirun-kill", "killed by SIGKILL", 1),
        ("mpirun-segv", "killed by SIGSEGV", 1),
        ("mpirun-abort", "MPI_ABORT with code 7", 1),
    ],
)
def test_under_a_launcher_the_rank_that_failed_first_is_named_with_its_error(name: str, error: str, rank: int | None) -> None:
    cause = printed(name)
    assert (cause.error, cause.rank) == (error, rank)


def test_how_the_rank_ended_is_told_too() -> None:
    assert printed("torchrun-kill").signal == printed("mpirun-kill").signal == signal.SIGKILL
    assert printed("torchrun-exit2").code == 2
    assert printed("mpirun-abort").code == 7


def test_the_same_mistake_of_a_rank_has_the_same_name_whoever_launched_it() -> None:
    alone = find("\n".join(line[9:] for line in (PRINTED / "torchrun-chain.log").read_text().splitlines() if "[rank1]" in line))
    assert printed("torchrun-chain").digest == alone.digest != ""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (TRACEBACK, "ValueError: bad label"),
        (TRACEBACK + LAUNCHER, "ValueError: bad label"),
        (TRACEBACK.replace("bad label", "two\nlines\n"), "ValueError: two"),
        (TRACEBACK.replace("ValueError: bad label", "ValueError: \n  on the next line"), "ValueError: on the next line"),
        (TRACEBACK.replace("\n", "\r\n"), "ValueError: bad label"),
        ("".join(f"\x1b[31m{line}\x1b[0m\n" for line in TRACEBACK.splitlines()), "ValueError: bad label"),
        ("".join(f"2026-11-18 08:22:21,123 {line}\n" for line in TRACEBACK.splitlines()), "ValueError: bad label"),
        ("".join(f"[1,1]<stderr>:{line}\n" for line in TRACEBACK.splitlines()), "ValueError: bad label"),
        ("".join(f"[worker-0.1] {line}\n" for line in TRACEBACK.splitlines()), "ValueError: bad label"),
        (TRACEBACK + "during the exit\nanother line\n", "ValueError: bad label"),
        (
            TRACEBACK
            + "\nDuring handling of the above exception, another exception occurred:\n\n"
            + TRACEBACK.replace("Value", "Key"),
            "KeyError: bad label",
        ),
        ("Traceback (most recent call last):\nrank 0 of 2\n" + TRACEBACK.partition("\n")[2], "ValueError: bad label"),
        (
            TRACEBACK + TRACEBACK.replace("ValueError: bad label", "RuntimeError: Connection reset by peer"),
            "ValueError: bad label",
        ),
        (
            "  File \"/code/train.py\", line 3\n    print((\n         ^\nSyntaxError: '(' was never closed\n",
            "SyntaxError: '(' was never closed",
        ),
        (
            "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 1 terminated with the following error:\n"
            + TRACEBACK,
            "ValueError: bad label",
        ),
        ("RuntimeError: Caught ValueError in DataLoader worker process 0.\nOriginal " + TRACEBACK, "ValueError: bad label"),
        (
            THROWN,
            "std::runtime_error: no such device",
        ),
        (
            "train.sh: line 3: 4711 Segmentation fault      (core dumped) ./train\n",
            "Segmentation fault      (core dumped) ./train",
        ),
        ("epoch 1\nKilled\n", "Killed"),
        ("bash: trian: command not found\n", "bash: trian: command not found"),
        ("train.sh: 1: trian: not found\n", "train.sh: 1: trian: not found"),
        (
            "/usr/bin/python3: can't open file '/code/trian.py': [Errno 2] No such file or directory\n",
            "/usr/bin/python3: can't open file '/code/trian.py': [Errno 2] No such file or directory",
        ),
        ("/usr/bin/python3: No module named trian\n", "/usr/bin/python3: No module named trian"),
        ("cp: error writing 'x': No space left on device\n", "cp: error writing 'x': No space left on device"),
        (
            "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --bad\n",
            "train.py: error: unrecognized arguments: --bad",
        ),
        (
            FAULT,
            "Fatal Python error: Segmentation fault",
        ),
        ("epoch 1 loss 0.3\nepoch 2 loss 0.2\n", ""),
        ("", ""),
    ],
)
def test_the_error_is_found(text: str, error: str) -> None:
    assert find(text).error == error


def test_a_traceback_that_a_program_logged_and_survived_gives_way_to_the_last() -> None:
    assert find(TRACEBACK.replace("Value", "Key") + "went on\n" + TRACEBACK).error == "ValueError: bad label"


def test_mixed_lines_of_two_ranks_are_told_apart() -> None:
    first = [f"[rank0]: {line}" for line in TRACEBACK.replace("ValueError: bad label", "KeyError: 'a'").splitlines()]
    second = [f"[rank1]: {line}" for line in TRACEBACK.splitlines()]
    mixed = "\n".join(line for pair in zip(first, second, strict=True) for line in pair)
    cause = find(mixed + "\n" + REPORT.replace("3 (", "0 ("))
    assert (cause.error, cause.rank) == ("KeyError: 'a'", 0)


def test_the_error_file_of_torchrun_tells_what_the_rank_did_not_print() -> None:
    filed = json.dumps(
        {"message": {"message": "ValueError: bad label", "extraInfo": {"py_callstack": TRACEBACK, "timestamp": "1"}}}
    )
    cause = find(REPORT, filed)
    assert (cause.error, cause.rank) == ("ValueError: bad label", 3)
    for damaged in ("", "[]", "{", '{"message": "x"}', '{"message": {"extraInfo": {"py_callstack": 3}}}', "[" * 10_000):
        assert find(REPORT, damaged).error == "exit code 1"


@pytest.mark.parametrize(
    "piece",
    [
        "a" * 1000,
        "[rank0]: ",
        "Process name: [",
        "[x-1] ",
        "Traceback (most recent call last):\n",
        "Root Cause (first observed failure):\n[0]:\n",
        "\n" * 50,
        "MPI_ABORT was invoked on rank 1 ",
    ],
)
def test_hostile_text_is_read_in_bounded_time(piece: str) -> None:
    find(piece * (4 * REACH // len(piece)))
