"""A run in the foreground: its output, keys, status and Ctrl-C. A single `poll` waits for all of them."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from fairway.cli.address import job_path
from fairway.cli.session import has_colour, is_terminal, say, write, write_error, write_json
from fairway.cli.terminal import tty
from fairway.cli.terminal.output_printer import PlainPrinter, PrefixPrinter
from fairway.cli.terminal.progress_bar import PATIENCE
from fairway.cli.terminal.run_status import OVER, RunStatusLines, exit_code, farewell, restarted
from fairway.cli.terminal.screen import REDRAW, TerminalScreen
from fairway.errors import FairwayError, UnavailableError
from fairway.units.quantity import show_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fairway.cli.session import CommandSession
    from fairway.cli.terminal.stdin_socket import StdinSocket
    from fairway.cli.terminal.tty import KeyboardInput, SignalPipe
    from fairway.sdk.transport.http import SocketReply

_QUESTION = "stop it, detach (it goes on without you), or continue? [s/d/c] "


_MOST_BREAKS = 8


class RunFollower:
    """Follows one run until it ends or the user detaches."""

    def __init__(
        self,
        session: CommandSession,
        job: dict[str, Any],
        *,
        interactive: bool = False,
        raw: bool = False,
        door: StdinSocket | None = None,
        tail: int | None = None,
    ) -> None:
        self.session = session
        self.name = str(job["name"])
        self.status = RunStatusLines()
        self.status.take(job)
        self.raw = raw
        """Whether the task owns the terminal, as a shell does; then no status is drawn."""
        drawn = is_terminal(1) and not raw and session.output != "json" and os.environ.get("TERM") != "dumb"
        self.screen = TerminalScreen(write, lambda: tty.size()[1]) if drawn else None
        plain = write_error if session.output == "json" else write
        self.emit = self.screen.output if self.screen else plain
        self.printer: PlainPrinter | PrefixPrinter = PlainPrinter(self.emit)
        self.interactive = interactive
        """Whether rank 0 has its own terminal, which receives the user's keys."""
        self.door = door
        """The socket from which the task reads this process's standard input."""
        self.tail = tail
        """Number of earlier lines to show first; None for all output from the beginning."""
        self.typed = b""
        """Keys typed before the task runs."""
        self.stopping = 0
        self.passed = False
        """Whether the last Ctrl-C was passed to the program; the next one asks the user what to do."""
        self.detached = False
        self.interrupted = 0
        """The signal on which the run was stopped."""
        self._seen: dict[tuple[str, int], int] = {}
        """Bytes printed of each attempt of each task: after a lost connection the daemon sends all output again."""
        self._skip: dict[tuple[str, int], int] = {}
        self._rest = b""
        self._breaks = 0
        """How often in a row the connection broke before any data arrived."""
        self._drawn = 0.0
        self._waits = ("", 0.0)
        """The reason why the run waits, and when it was first received."""
        self._held_for = ""
        """The reason that was last printed."""
        self._heard = 0.0
        """Time of the last output."""

    def follow(self) -> int:
        """Follow the run to its end. Returns the exit code."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGWINCH) if is_terminal(1) else (signal.SIGINT, signal.SIGTERM)
        with tty.SignalPipe(*numbers) as signals:
            if self.interactive:
                with tty.KeyboardInput(raw=self.raw) as keys:
                    self._watch(signals, keys)
            else:
                self._watch(signals, None)
        return self._end()

    def _watch(self, signals: SignalPipe, keys: KeyboardInput | None) -> None:
        while not self._over():
            self._rest_after_break()
            try:
                reply = self.session.call("GET", job_path(self.name, "/watch"), self._wanted())
            except UnavailableError:
                # The daemon was stopped at this moment; the second try starts it again.
                reply = self.session.call("GET", job_path(self.name, "/watch"), self._wanted())
            self._skip = dict(self._seen) if self.tail is None else {}
            self._rest = b""
            try:
                self._read(reply, signals, keys)
            except UnavailableError:
                # The connection to the daemon broke; the run goes on. Request the output again and skip what was printed.
                continue
            finally:
                reply.close()
        self.printer.close()

    def _wanted(self) -> dict[str, str | int | float | bool | None]:
        """Return the query for the output still needed. With `tail`, lines may be repeated after a lost connection."""
        if self.tail is None:
            return {}
        return {"since": self._heard} if self._heard else {"tail": self.tail}

    def _rest_after_break(self) -> None:
        """Reconnect at once after a lost connection, then with growing delays; fail if no data arrives in between."""
        self._breaks += 1
        if self._breaks > _MOST_BREAKS:
            message = f"the daemon keeps closing the connection while streaming {self.name}"
            raise UnavailableError(message, fix="the run continues; `fairway daemon status` shows where the daemon's log is")
        if self._breaks > 2:
            time.sleep(0.1 * self._breaks)

    def _read(self, reply: SocketReply, signals: SignalPipe, keys: KeyboardInput | None) -> None:
        poller = select.poll()
        poller.register(reply.fileno(), select.POLLIN)
        poller.register(signals.fileno(), select.POLLIN)
        if keys:
            poller.register(keys.descriptor, select.POLLIN)
        if self.door and self.door.is_open:
            poller.register(self.door.fileno(), select.POLLIN)
        while not self._over():
            ready = [] if reply.ready else [descriptor for descriptor, _ in poller.poll(self._pause)]
            if reply.ready or reply.fileno() in ready:
                data = reply.chunk()
                if data is None:
                    return
                self._breaks = 0
                self._take(data)
            if signals.fileno() in ready:
                self._handle(signals, keys)
            if keys and keys.descriptor in ready:
                self._type(keys, poller)
            if self.door and self.door.is_open and self.door.fileno() in ready:
                self._hand_over(self.door, poller)
            self._tick()

    def _over(self) -> bool:
        return self.detached or self.status.job.get("ended", False)

    def _take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        now = time.monotonic()
        for line in lines:
            if not line.strip():
                continue
            message = json.loads(line)
            if "log" in message:
                self._print(message["log"], now)
            elif "job" in message:
                self._learn(message["job"])
            elif "end" in message:
                self._learn({**message["end"], "ended": True})

    def _print(self, piece: dict[str, Any], now: float) -> None:
        data = _log_bytes(piece)
        attempt = (str(piece["task"]), int(piece.get("attempt", 0)))
        self._leave_out(attempt, int(piece.get("skipped", 0)))
        skip = min(self._skip.get(attempt, 0), len(data))
        self._skip[attempt] = self._skip.get(attempt, 0) - skip
        if len(data) > skip:
            self._heard = time.time()
            self._seen[attempt] = self._seen.get(attempt, 0) + len(data) - skip
            if isinstance(self.printer, PlainPrinter) and self._several(attempt[0]):
                self.printer = PrefixPrinter(self.emit, colour=has_colour(1))
            if piece.get("stream") == "stderr" and isinstance(self.printer, PlainPrinter):
                write_error(data[skip:])
            else:
                self.printer.add(attempt[0], data[skip:], now)

    def _leave_out(self, place: tuple[str, int], removed: int) -> None:
        """Account for bytes removed from the log, and report those that were never shown."""
        shown = min(self._skip.get(place, 0), removed)
        if removed:
            self._skip[place] = self._skip.get(place, 0) - shown
            self._seen[place] = self._seen.get(place, 0) + removed - shown
        if removed > shown:
            self._words(f"{show_bytes(removed - shown)} of the output of {place[0]} were removed before they could be shown")

    def _several(self, task: str) -> bool:
        """Whether more than one process prints, so that each line needs the task's name."""
        return _count_outputs(self.status.job) > 1 or any(task_name != task for task_name, _ in self._seen)

    def _learn(self, job: dict[str, Any]) -> None:
        was_running = self.status.job.get("phase") == "Running"
        restart_text = restarted(self.status.job, job)
        self.status.take(job)
        if restart_text:
            self._words(restart_text)
        self._hold(job)
        if self.interactive and job.get("phase") == "Running" and not was_running:
            self._resize()
            self._send_keys()

    def _hold(self, job: dict[str, Any]) -> None:
        """Record why the run waits and since when."""
        hold = job.get("hold") if job.get("phase") not in ("Running", *OVER) else None
        reason = hold["reason"] if hold else ""
        if reason != self._waits[0]:
            self._waits = (reason, time.monotonic())

    def _say_hold(self, now: float) -> None:
        reason, since = self._waits
        hold = self.status.job.get("hold")
        if self.screen or not reason or reason == self._held_for or now - since < PATIENCE or not hold:
            return
        self._held_for = reason
        helps = f"; {hold['what_would_help']}" if hold.get("what_would_help") else ""
        say(f"{self.name} waits: {hold['message']}{helps}")

    @property
    def _pause(self) -> float | None:
        """Timeout of the poll in milliseconds; None if nothing has to be redrawn or printed by time."""
        drawn = self.screen or isinstance(self.printer, PrefixPrinter)
        unsaid = not self.screen and bool(self._waits[0]) and self._waits[0] != self._held_for
        return REDRAW * 1000 if drawn or unsaid else None

    def _tick(self) -> None:
        now = time.monotonic()
        self._say_hold(now)
        self.printer.tick(now)
        if self.screen and now - self._drawn >= REDRAW:
            self._drawn = now
            self.screen.status(self.status.lines(time.time()))

    def _type(self, keys: KeyboardInput, waiting: select.poll) -> None:
        data = keys.read()
        if data is None:
            # The terminal is gone and the run goes on. No end of input is sent: it would end many programs.
            waiting.unregister(keys.descriptor)
            return
        self.typed += data
        if self.status.job.get("phase") == "Running":
            self._send_keys()

    @staticmethod
    def _hand_over(door: StdinSocket, waiting: select.poll) -> None:
        descriptor = door.fileno()
        door.answer()
        if not door.is_open:
            waiting.unregister(descriptor)

    def _send_keys(self) -> None:
        if not self.typed:
            return
        data, self.typed = self.typed, b""
        try:
            self.session.send_raw(job_path(self.name, "/input"), data, {"task": self._first_task()})
        except FairwayError as error:
            self._words(f"fairway: your input could not be delivered: {error.message}")

    def _resize(self) -> None:
        rows, columns = tty.size()
        try:
            self.session.send(
                "POST", job_path(self.name, "/window"), {"rows": rows, "cols": columns}, {"task": self._first_task()}
            )
        except FairwayError:
            # A wrong window size is not worth an error message.
            return

    def _first_task(self) -> str:
        tasks = self.status.job.get("tasks") or []
        return str(tasks[0]["name"]) if tasks else "worker-0"

    def _handle(self, signals: SignalPipe, keys: KeyboardInput | None) -> None:
        for number in signals.take():
            if number == signal.SIGWINCH:
                if self.interactive:
                    self._resize()
            elif number == signal.SIGTERM or self.stopping:
                self.interrupted = number
                self._stop()
            elif not self.passed and self._pass_on():
                self.passed = True
            elif not is_terminal(0):
                self.interrupted = number
                self._stop()
            else:
                self.passed = False
                self._ask(signals, keys)

    def _pass_on(self) -> bool:
        """Send the first Ctrl-C to the program, as if it ran directly. Return False if no task runs, or on a cluster."""
        if self.session.cluster is not None or not any(task["phase"] == "Running" for task in self.status.job.get("tasks") or ()):
            return False
        hint = "Ctrl-C again: stop, detach or continue" if is_terminal(0) else "a second one stops it"
        self._words(f"interrupt sent to {self.name} ({hint})")
        try:
            self.session.send("POST", job_path(self.name, "/interrupt"), {})
        except FairwayError:
            # The run just ended, or no process takes the signal: the caller asks the user instead.
            return False
        return True

    def _ask(self, signals: SignalPipe, keys: KeyboardInput | None) -> None:
        """Ask the user whether to stop, detach or continue. A second Ctrl-C stops the run."""
        question = f"{self.name} is running: {_QUESTION}"
        if self.screen:
            self.screen.ask(question)
        else:
            sys.stderr.write(question)
            sys.stderr.flush()
        poller = select.poll()
        poller.register(0, select.POLLIN)
        poller.register(signals.fileno(), select.POLLIN)
        ready = [descriptor for descriptor, _ in poller.poll()]
        if signals.fileno() in ready and signal.SIGINT in signals.take():
            self.stopping = 1
            self.interrupted = signal.SIGINT
            self._stop()
            return
        answer = ((keys.read() if keys else os.read(0, 4096)) or b"").strip().lower()[:1]
        if self.screen and keys:
            self.screen.output(answer + b"\r\n")
        if answer == b"s":
            self.interrupted = signal.SIGINT
            self._stop()
        elif answer == b"d":
            self.detached = True

    def _stop(self) -> None:
        """Stop the run: gracefully the first time, then at once."""
        self.stopping += 1
        self._words(f"stopping {self.name}" + (" at once" if self.stopping > 1 else " (Ctrl-C again: kill it at once)"))
        try:
            self.session.send("POST", job_path(self.name, "/stop"), {"now": self.stopping > 1})
        except FairwayError as error:
            self._words(f"fairway: {error}")

    def _words(self, text: str) -> None:
        if self.screen:
            self.screen.words(text)
        else:
            say(text)

    def _end(self) -> int:
        if self.screen:
            self.screen.close()
        job = self.status.job
        if self.detached:
            say(f"{self.name} keeps running; fairway attach {self.name}; fairway stop {self.name}")
            return 0
        say(farewell(job))
        if self.session.output == "json":
            write_json(job)
        return 128 + self.interrupted if self.interrupted else exit_code(job)


def _count_outputs(job: dict[str, Any]) -> int:
    """Return the number of output streams of the run: its processes where known, else its replicas."""
    tasks = job.get("tasks") or []
    return sum(int(task.get("processes") or 1) for task in tasks) if tasks else int(job.get("replicas") or 1)


def _log_bytes(piece: dict[str, Any]) -> bytes:
    """Return the bytes of a piece of output. Bytes that are not UTF-8 arrive as lone surrogates, or the piece as base64."""
    if "base64" in piece:
        import binascii

        return binascii.a2b_base64(piece["base64"])
    text: str = piece["text"]
    return text.encode("utf-8", "surrogateescape")
