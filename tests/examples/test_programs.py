"""Unchanged programs: each gives the same result by its own launcher, by `fairway run` and by `fairway submit`.

A sample of them runs with the other tests, chosen by `FAIRWAY_PROGRAMS_SEED`; all of them run with `make soak`.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from gang import FAIRWAY, ROOT, environment

sys.path.insert(0, str(Path(__file__).parent / "suite"))

from sources import unpacked
from table import MPI_SOURCES, PROGRAMS, Program

SUITE = Path(__file__).with_name("suite")
SAMPLE = 6
PATIENCE = 240
_ALONE: dict[tuple[object, ...], list[object]] = {}
pytestmark = pytest.mark.timeout(3 * PATIENCE)


def _seed() -> str:
    """Return `FAIRWAY_PROGRAMS_SEED`, or a constant: every worker of a test run must choose alike."""
    return os.environ.get("FAIRWAY_PROGRAMS_SEED", "15")


def _sample() -> list[Program]:
    return random.Random(_seed()).sample([program for program in PROGRAMS if program.sampled], SAMPLE)


class Bench:
    """A working folder with the program in it, and the environment variables of its activated environment."""

    def __init__(self, program: Program, python: str, folder: Path, home: Path) -> None:
        self.program = program
        self.folder = folder
        self.bin = Path(python).parent
        self.site = next((self.bin.parent / "lib").glob("python3*/site-packages"))
        kind, _, place = program.files.partition(":")
        if kind == "suite":
            shutil.copytree(SUITE, folder, ignore=shutil.ignore_patterns("__pycache__", "table.py", "sources.py"))
        elif kind == "sdist":
            shutil.copytree(unpacked(MPI_SOURCES) / "demo" / place, folder, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            folder.mkdir()
        self.env = {
            **environment(home),
            **program.variables,
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }

    def call(self, words: list[str], **variables: str) -> tuple[int, str]:
        """Run a command in the folder; return its exit code and output."""
        done = subprocess.run(
            words,
            cwd=self.folder,
            env={**self.env, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.returncode, done.stdout

    def words(self, text: str) -> list[str]:
        """Return a command line of the table as a list."""
        return shlex.split(text.format(site=self.site))

    def facts(self, output: str) -> list[object]:
        """Return the part of the output that must be the same."""
        found = re.findall(self.program.facts, output, re.MULTILINE) if self.program.facts else []
        return sorted((one if isinstance(one, tuple) else (one.strip(),)) for one in found)

    def alone(self) -> list[object]:
        """Return the output under its own launcher; run once per program, since several ways to start it are compared with it."""
        program = self.program
        key = (program.environment, program.files, program.own, program.facts, *sorted(program.variables.items()))
        if key not in _ALONE:
            _ALONE[key] = self._alone()
        return _ALONE[key]

    def _alone(self) -> list[object]:
        code, output = self.call(self.words(self.program.own), PORT=str(_free_port()), PORT_TOO=str(_free_port()))
        assert code == 0, output
        found = self.facts(output)
        assert len(found) == self.program.count or not self.program.count, output
        assert found or not self.program.facts, output
        return found

    def run(self) -> tuple[int, str]:
        """Run it with `fairway run`."""
        return self.call([str(FAIRWAY), "run", "--name", "run", *self._options(), *self.words(self.program.ours)])

    def submit(self) -> tuple[int, str]:
        """Run it with `fairway submit`, which runs a copy of the folder."""
        code, output = self.call(
            [str(FAIRWAY), "submit", "--name", "submitted", *self._options(), *self.words(self.program.ours)]
        )
        assert code == 0, output
        ended, said = self.call([str(FAIRWAY), "wait", "submitted-1"])
        return ended, said + self.call([str(FAIRWAY), "logs", "submitted-1"])[1]

    def _options(self) -> list[str]:
        given = {name: value for name, value in self.program.variables.items() if name != "DEVICES"}
        given |= {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return [word for name, value in given.items() for word in ("-e", f"{name}={value}")]


def _free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def check(program: Program, python: str, folder: Path, home: Path) -> None:
    """Fail unless both commands of Fairway do what the program's own launcher does."""
    bench = Bench(program, python, folder, home)
    expected = bench.alone()
    for way in (bench.run, bench.submit):
        code, output = way()
        assert code == 0, output
        assert bench.facts(output) == expected, output


def _cases(programs: list[Program] | tuple[Program, ...]) -> list[object]:
    return [pytest.param(one, id=one.name, marks=pytest.mark.framework(one.environment)) for one in programs]


@pytest.mark.parametrize("program", _cases(_sample()))
def test_a_sample_of_programs_runs_as_under_its_own_launcher(program: Program, python: str, tmp_path: Path, home: Path) -> None:
    check(program, python, tmp_path / "work", home)


@pytest.mark.soak
@pytest.mark.parametrize("program", _cases(PROGRAMS))
def test_every_program_runs_as_under_its_own_launcher(program: Program, python: str, tmp_path: Path, home: Path) -> None:
    check(program, python, tmp_path / "work", home)


def test_the_suite_is_what_it_promises() -> None:
    assert len(PROGRAMS) >= 25
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS)
    assert sum(program.third_party for program in PROGRAMS) >= 12
    assert MPI_SOURCES in (ROOT / "tests" / "requirements" / "mpi.txt").read_text().splitlines()
