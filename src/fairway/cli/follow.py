"""A run in the foreground: its output, its keys, its status, and Ctrl-C. One `poll` waits for all of them."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from fairway.cli import terminal
from fairway.cli.address import job_path
from fairway.cli.printing import Plain, Prefixed
from fairway.cli.progress import PATIENCE
from fairway.cli.screen import REDRAW, Screen
from fairway.cli.session import has_colour, is_terminal, say, write, write_error, write_json
from fairway.cli.status import OVER, Status, exit_code, farewell, restarted
from fairway.errors import FairwayError, UnavailableError
from fairway.units.quantity import show_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fairway.cli.session import Session
    from fairway.cli.stdin import Door
    from fairway.cli.terminal import Keys, Signals
    from fairway.sdk.wire import Reply

_QUESTION = "stop it, detach (it goes on without you), or continue? [s/d/c] "


_MOST_BREAKS = 8


class Follower:
    """Follows one run until it ends or is let go."""

    def __init__(
        self,
        session: Session,
        job: dict[str, Any],
        *,
        interactive: bool = False,
        raw: bool = False,
        door: Door | None = None,
        tail: int | None = None,
    ) -> None:
        self.session = session
        self.name = str(job["name"])
        self.status = Status()
        self.status.take(job)
        self.raw = raw
        """A shell: its terminal belongs to it, so nothing of ours is drawn."""
        drawn = is_terminal(1) and not raw and session.output != "json" and os.environ.get("TERM") != "dumb"
        self.screen = Screen(write, lambda: terminal.size()[1]) if drawn else None
        plain = write_error if session.output == "json" else write
        self.emit = self.screen.output if self.screen else plain
        self.printer: Plain | Prefixed = Plain(self.emit)
        self.interactive = interactive
        """Whether rank 0 has a terminal of its own, which gets our keys."""
        self.door = door
        """Where the task may fetch our standard input."""
        self.tail = tail
        """Lines to begin with; None: everything from the beginning."""
        self.typed = b""
        """Keys that wait for the task to run."""
        self.stopping = 0
        self.passed = False
        """Whether the program got a Ctrl-C that we have not asked about yet."""
        self.detached = False
        self.interrupted = 0
        """The signal that made us stop the run."""
        self._seen: dict[tuple[str, int], int] = {}
        """Bytes printed of each attempt of each task: after a break the daemon tells everything again."""
        self._skip: dict[tuple[str, int], int] = {}
        self._rest = b""
        self._breaks = 0
        """How often in a row the story broke off before it began."""
        self._drawn = 0.0
        self._waits = ("", 0.0)
        """For what it waits, and since when as far as we saw."""
        self._held_for = ""
        """For what it was said to wait."""
        self._heard = 0.0
        """When output came last."""

    def follow(self) -> int:
        """Until the end. Returns the exit code."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGWINCH) if is_terminal(1) else (signal.SIGINT, signal.SIGTERM)
        with terminal.Signals(*numbers) as signals:
            if self.interactive:
                with terminal.Keys(raw=self.raw) as keys:
                    self._watch(signals, keys)
            else:
                self._watch(signals, None)
        return self._end()

    def _watch(self, signals: Signals, keys: Keys | None) -> None:
        while not self._over():
            self._rest_after_break()
            try:
                reply = self.session.call("GET", job_path(self.name, "/watch"), self._wanted())
            except UnavailableError:
                # The daemon was stopped in this very moment; the next try starts it again.
                reply = self.session.call("GET", job_path(self.name, "/watch"), self._wanted())
            self._skip = dict(self._seen) if self.tail is None else {}
            self._rest = b""
            try:
                self._read(reply, signals, keys)
            except UnavailableError:
                # The daemon went away in the middle of its story. The run did not: ask again, and skip what is known.
                continue
            finally:
                reply.close()
        self.printer.close()

    def _wanted(self) -> dict[str, str | int | float | bool | None]:
        """From where on its output is wanted. Where only the end was asked for, a break may repeat lines of its last moment."""
        if self.tail is None:
            return {}
        return {"since": self._heard} if self._heard else {"tail": self.tail}

    def _rest_after_break(self) -> None:
        """Ask again at once after a break, but not for ever when nothing comes in between."""
        self._breaks += 1
        if self._breaks > _MOST_BREAKS:
            message = f"the daemon breaks off again and again when asked for {self.name}"
            raise UnavailableError(message, fix="the run goes on; `fairway daemon status` says where the daemon's log is")
        if self._breaks > 2:
            time.sleep(0.1 * self._breaks)

    def _read(self, reply: Reply, signals: Signals, keys: Keys | None) -> None:
        waiting = select.poll()
        waiting.register(reply.fileno(), select.POLLIN)
        waiting.register(signals.fileno(), select.POLLIN)
        if keys:
            waiting.register(keys.descriptor, select.POLLIN)
        if self.door and self.door.is_open:
            waiting.register(self.door.fileno(), select.POLLIN)
        while not self._over():
            ready = [] if reply.ready else [descriptor for descriptor, _ in waiting.poll(self._pause)]
            if reply.ready or reply.fileno() in ready:
                data = reply.chunk()
                if data is None:
                    return
                self._breaks = 0
                self._take(data)
            if signals.fileno() in ready:
                self._handle(signals, keys)
            if keys and keys.descriptor in ready:
                self._type(keys, waiting)
            if self.door and self.door.is_open and self.door.fileno() in ready:
                self._hand_over(self.door, waiting)
            self._tick()

    def _over(self) -> bool:
        return self.detached or self.status.job.get("ended", False)

    def _take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        now = time.monotonic()
        for line in lines:
            if not line.strip():
                continue
            told = json.loads(line)
            if "log" in told:
                self._print(told["log"], now)
            elif "job" in told:
                self._learn(told["job"])
            elif "end" in told:
                self._learn({**told["end"], "ended": True})

    def _print(self, piece: dict[str, Any], now: float) -> None:
        data = _log_bytes(piece)
        place = (str(piece["task"]), int(piece.get("attempt", 0)))
        self._leave_out(place, int(piece.get("skipped", 0)))
        skip = min(self._skip.get(place, 0), len(data))
        self._skip[place] = self._skip.get(place, 0) - skip
        if len(data) > skip:
            self._heard = time.time()
            self._seen[place] = self._seen.get(place, 0) + len(data) - skip
            if isinstance(self.printer, Plain) and self._several(place[0]):
                self.printer = Prefixed(self.emit, colour=has_colour(1))
            if piece.get("stream") == "stderr" and isinstance(self.printer, Plain):
                write_error(data[skip:])
            else:
                self.printer.add(place[0], data[skip:], now)

    def _leave_out(self, place: tuple[str, int], removed: int) -> None:
        """So many bytes are not there any more; those that were not shown before are told of."""
        shown = min(self._skip.get(place, 0), removed)
        if removed:
            self._skip[place] = self._skip.get(place, 0) - shown
            self._seen[place] = self._seen.get(place, 0) + removed - shown
        if removed > shown:
            self._words(f"{show_bytes(removed - shown)} that {place[0]} printed were removed before they were shown")

    def _several(self, task: str) -> bool:
        """Whether more than one process prints: then each line needs its name."""
        return _count_outputs(self.status.job) > 1 or any(known != task for known, _ in self._seen)

    def _learn(self, job: dict[str, Any]) -> None:
        ran = self.status.job.get("phase") == "Running"
        again = restarted(self.status.job, job)
        self.status.take(job)
        if again:
            self._words(again)
        self._hold(job)
        if self.interactive and job.get("phase") == "Running" and not ran:
            self._resize()
            self._send_keys()

    def _hold(self, job: dict[str, Any]) -> None:
        """Note why it waits, from when on; without a status on the screen it is said once."""
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
        """Milliseconds until something is to be drawn or said; None: only what happens matters."""
        drawn = self.screen or isinstance(self.printer, Prefixed)
        unsaid = not self.screen and bool(self._waits[0]) and self._waits[0] != self._held_for
        return REDRAW * 1000 if drawn or unsaid else None

    def _tick(self) -> None:
        now = time.monotonic()
        self._say_hold(now)
        self.printer.tick(now)
        if self.screen and now - self._drawn >= REDRAW:
            self._drawn = now
            self.screen.status(self.status.lines(time.time()))

    def _type(self, keys: Keys, waiting: select.poll) -> None:
        data = keys.read()
        if data is None:
            # The run goes on without its terminal; an end of input would end many programs.
            waiting.unregister(keys.descriptor)
            return
        self.typed += data
        if self.status.job.get("phase") == "Running":
            self._send_keys()

    @staticmethod
    def _hand_over(door: Door, waiting: select.poll) -> None:
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
            self._words(f"fairway: what you typed did not arrive: {error.message}")

    def _resize(self) -> None:
        rows, columns = terminal.size()
        try:
            self.session.send(
                "POST", job_path(self.name, "/window"), {"rows": rows, "cols": columns}, {"task": self._first_task()}
            )
        except FairwayError:
            # A window of the wrong size is no reason to disturb anybody.
            return

    def _first_task(self) -> str:
        tasks = self.status.job.get("tasks") or []
        return str(tasks[0]["name"]) if tasks else "worker-0"

    def _handle(self, signals: Signals, keys: Keys | None) -> None:
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
        """The first Ctrl-C is the program's, as without us. False when nothing of it runs, or on a cluster."""
        if self.session.cluster is not None or not any(task["phase"] == "Running" for task in self.status.job.get("tasks") or ()):
            return False
        again = "Ctrl-C again: stop, detach or continue" if is_terminal(0) else "a second one stops it"
        self._words(f"interrupt sent to {self.name} ({again})")
        try:
            self.session.send("POST", job_path(self.name, "/interrupt"), {})
        except FairwayError:
            # It ended in this very moment, or no process listens: asking is what remains.
            return False
        return True

    def _ask(self, signals: Signals, keys: Keys | None) -> None:
        """Ctrl-C on a terminal. A second one means: stop, at once."""
        question = f"{self.name} is running: {_QUESTION}"
        if self.screen:
            self.screen.ask(question)
        else:
            sys.stderr.write(question)
            sys.stderr.flush()
        waiting = select.poll()
        waiting.register(0, select.POLLIN)
        waiting.register(signals.fileno(), select.POLLIN)
        ready = [descriptor for descriptor, _ in waiting.poll()]
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
        """The first time politely, then at once."""
        self.stopping += 1
        self._words(f"stopping {self.name}" + (" at once" if self.stopping > 1 else " (Ctrl-C again: at once)"))
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
            say(f"{self.name} goes on; fairway attach {self.name}; fairway stop {self.name}")
            return 0
        say(farewell(job))
        if self.session.output == "json":
            write_json(job)
        return 128 + self.interrupted if self.interrupted else exit_code(job)


def _count_outputs(job: dict[str, Any]) -> int:
    """How many streams of output the run has: processes, where they are known."""
    tasks = job.get("tasks") or []
    return sum(int(task.get("processes") or 1) for task in tasks) if tasks else int(job.get("replicas") or 1)


def _log_bytes(piece: dict[str, Any]) -> bytes:
    """The bytes of a piece of output. What is no UTF-8 travels as lone surrogates or, whole, as base64."""
    if "base64" in piece:
        import binascii

        return binascii.a2b_base64(piece["base64"])
    text: str = piece["text"]
    return text.encode("utf-8", "surrogateescape")
