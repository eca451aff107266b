"""`fairway run` at a terminal: questions, debuggers, shells, Ctrl-C, and the status below."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from pathlib import Path

import pytest

FAIRWAY = str(Path(sys.executable).with_name("fairway"))
PATIENCE = 60.0


class Person:
    """A terminal of 30 rows and 100 columns: types, and reads the output."""

    def __init__(self, desk, *words: str) -> None:
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(desk.folder)
            os.execve(FAIRWAY, [FAIRWAY, *words], {**desk.environment, "TERM": "xterm"})
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.seen = b""
        self.read_until = 0

    def expect(self, pattern: bytes) -> bytes:
        """Read until this pattern appears after the previous match."""
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.seen[self.read_until :])):
            assert time.monotonic() < deadline, self.seen.decode(errors="replace")
            assert self.read(), f"{pattern!r} did not come:\n{self.seen.decode(errors='replace')}"
        self.read_until += found.end()
        return found.group()

    def read(self) -> bool:
        """Read once; return whether more output may follow."""
        if select.select([self.terminal], [], [], 0.1)[0]:
            try:
                data = os.read(self.terminal, 65536)
            except OSError:
                return False
            self.seen += data
            return bool(data)
        return True

    def type(self, text: bytes) -> None:
        os.write(self.terminal, text)

    def leave(self) -> int:
        """Wait for the end; return the exit code."""
        while self.read():
            pass
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_debugger_and_a_question_work(desk) -> None:
    desk.write(
        "ask.py", "import sys\nassert sys.stdin.isatty()\nx = 41\nbreakpoint()\nname = input('name? ')\nprint('hello', name)\n"
    )
    person = Person(desk, "run", "--", "python", "ask.py")
    person.expect(rb"\(Pdb\) ")
    person.type(b"p x + 1\n")
    person.expect(rb"42")
    person.type(b"c\n")
    person.expect(rb"name\? ")
    person.type(b"ada\n")
    person.expect(rb"hello ada")
    person.expect(rb"ask-1 succeeded")
    assert person.leave() == 0


def test_a_shell_gets_the_whole_terminal(desk) -> None:
    person = Person(desk, "run", "-it", "--", "bash", "--norc")
    person.expect(rb"[#$] ")
    person.type(b"stty size; echo $((6*7))\n")
    person.expect(rb"30 100")
    person.expect(rb"42")
    # The echoed command must not match what is expected: an interrupt before the program runs would hit the shell itself.
    person.type(b"sh -c 'echo as${nothing}leep; exec sleep 100'\n")
    person.expect(rb"asleep")
    person.type(b"\x03")
    person.type(b"echo still $((1+1)) here\n")
    person.expect(rb"still 2 here")
    person.type(b"exit\n")
    person.expect(rb"bash-1 succeeded")
    assert person.leave() == 0


COUNT = """
import fairway, time
for step in range(1, 10**6):
    fairway.report(step=step, loss=1/step)
    print("line", step, flush=True)
    if fairway.should_stop():
        break
    time.sleep(0.05)
"""


DEAF_TO_CTRL_C = """
import fairway, time
step = 0
while not fairway.should_stop():
    try:
        step += 1
        print("line", step, flush=True)
        time.sleep(0.05)
    except KeyboardInterrupt:
        print("caught", flush=True)
"""


@pytest.mark.parametrize(("answer", "code", "phase"), [(b"s", 130, b"Stopped"), (b"d", 0, b"Running")])
def test_the_first_interrupt_is_the_programs_and_the_second_asks(desk, answer: bytes, code: int, phase: bytes) -> None:
    desk.write("count.py", DEAF_TO_CTRL_C)
    person = Person(desk, "run", "--", "python", "count.py")
    person.expect(rb"line 3\r")
    for _ in range(2):
        person.type(b"\x03")
        person.expect(rb"interrupt sent to count-\d+")
        person.expect(rb"caught\r")
        person.type(b"\x03")
        person.expect(rb"\[s/d/c\] ")
        person.type(b"c")
        person.expect(rb"line \d+\r")
    person.type(b"\x03")
    person.expect(rb"caught\r")
    person.type(b"\x03")
    person.expect(rb"\[s/d/c\] ")
    person.type(answer)
    assert person.leave() == code
    assert phase in desk.type("get", "count", "-o", "json").stdout
    desk.type("stop", "--now", "--wait", "count")


CLEANS_UP = """
import time
try:
    print("ready", flush=True)
    time.sleep(1000)
finally:
    print("cleaned up", flush=True)
"""


def test_an_interrupt_is_a_keyboard_interrupt_and_the_run_is_stopped(desk) -> None:
    desk.write("clean.py", CLEANS_UP)
    person = Person(desk, "run", "--retries", "3", "--", "python", "clean.py")
    person.expect(rb"ready")
    person.type(b"\x03")
    person.expect(rb"cleaned up")
    person.expect(rb"KeyboardInterrupt")
    person.expect(rb"clean-\d+ was stopped")
    assert person.leave() == 130
    assert b"Interrupted" in desk.type("get", "clean", "-o", "json").stdout


def test_a_closed_terminal_lets_the_run_go_on_and_attach_returns_to_it(desk) -> None:
    desk.write("name.py", "name = input('name? ')\nprint('hello', name)\nwhile input('more? ') != 'no': print('again')\n")
    first = Person(desk, "run", "--", "python", "name.py")
    first.expect(rb"name\? ")
    first.type(b"ada\n")
    first.expect(rb"hello ada")
    os.close(first.terminal)
    os.waitpid(first.pid, 0)
    again = Person(desk, "attach", "name")
    again.expect(rb"attached to name-1")
    again.expect(rb"hello ada")
    again.expect(rb"more\? ")
    again.type(b"yes\n")
    again.expect(rb"again\r")
    again.type(b"no\n")
    again.expect(rb"name-1 succeeded")
    assert again.leave() == 0
    over = desk.type("attach", "name")
    assert over.returncode == 5
    assert b"name-1 is over: Succeeded" in over.stderr
    assert b"fairway logs name-1" in over.stderr
    assert desk.type("attach", "no-such-run").returncode == 3


def test_a_second_interrupt_stops_at_once(desk) -> None:
    desk.write(
        "deaf.py",
        "import signal, time\n"
        "for number in (2, 15): signal.signal(number, signal.SIG_IGN)\n"
        "print('ready', flush=True)\ntime.sleep(1000)\n",
    )
    person = Person(desk, "run", "--", "python", "deaf.py")
    person.expect(rb"ready")
    person.type(b"\x03")
    person.expect(rb"interrupt sent")
    person.type(b"\x03")
    person.expect(rb"\[s/d/c\] ")
    began = time.monotonic()
    person.type(b"\x03")
    person.expect(rb"at once")
    assert person.leave() == 130
    assert time.monotonic() - began < 20, "its grace is thirty seconds"


def test_the_status_shows_the_step_and_the_curve_and_is_gone_at_the_end(desk) -> None:
    desk.write("count.py", COUNT)
    person = Person(desk, "run", "--name", "curve", "--stop-at-step", "80", "--", "python", "count.py")
    person.expect(rb"step \d+/80")
    person.expect("loss [0-9.]+ [▁▂▃▄▅▆▇█]+".encode())
    person.expect(rb"curve-1 succeeded")
    assert person.leave() == 0
    shown = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", person.seen)
    lines = [int(number) for number in re.findall(rb"line (\d+)\r", shown)]
    assert lines == list(range(1, len(lines) + 1))
    assert person.seen.rindex(b"\x1b[J") > person.seen.rindex(b"\x1b[2m"), "the last status was taken away"


def test_wait_redraws_in_place(desk) -> None:
    desk.write("count.py", COUNT)
    name = desk.type("run", "-d", "--stop-at-step", "60", "--", "python", "count.py").stdout.decode().strip()
    person = Person(desk, "wait", name)
    person.expect(rb"step \d+/60")
    person.expect(rb"\r(\x1b\[\d+A)?\x1b\[J")
    person.expect(rb"succeeded")
    assert person.leave() == 0
    left = person.seen.rpartition(b"\x1b[J")[2].strip().splitlines()
    assert [line.partition(b" after")[0] for line in left] == [f"{name} succeeded".encode()], "the status was taken away"
