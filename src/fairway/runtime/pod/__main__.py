"""`python -m fairway.runtime.pod`: be the first process of the container. Standard library only, Python 3.9 and newer."""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from fairway.runtime import contract, stop
from fairway.runtime.pod import ending, environment, remote, trust
from fairway.runtime.pod.carrying import Carrying, Operator
from fairway.runtime.pod.measuring import Measuring
from fairway.runtime.pod.order import TOKEN, VARIABLE, PodOrder
from fairway.runtime.pod.processes import Process, Processes
from fairway.runtime.pod.remote_listener import Listener
from fairway.runtime.pod.telling import Telling

TERMINATION_LOG = "/dev/termination-log"
CANNOT_RUN = 127
LOOK_AGAIN = 0.1
"""Seconds between two looks whether a program still listens."""
LINGER = 0.3
"""Seconds for what is left when no program listens any more."""
LAST_PART = 0.2
LAST_SECONDS = 5.0
"""SIGTERM comes this part of the grace before its end, at most so many seconds, when a program that listens has not ended."""
NOT_BROUGHT = 74
"""The program succeeded, and what it left could not be brought to the operator (EX_IOERR)."""


class Runner:
    """One task from its order to its end."""

    def __init__(self, order: PodOrder) -> None:
        self._order = order
        self._processes = Processes(order)
        self._term_at: float | None = None
        self._kill_at: float | None = None
        self._patient = False
        self._remote: Listener | None = None

    def run(self) -> int:
        """Start, wait, end; what the container exits with."""
        heard = _hear(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        self._prepare()
        given = {name: value for name, value in os.environ.items() if name not in (VARIABLE, TOKEN, trust.AUTHORITY)}
        if self._order.environment:
            given = environment.activated(given, self._order.environment)
        try:
            given |= self._listen(given)
            self._processes.start(given)
        except (OSError, remote.RefusedError) as error:
            return self._cannot_run(error)
        telling, carrying = self._telling(), self._carrying()
        for speaking in (telling, carrying):
            if speaking is not None:
                speaking.start()
        while self._processes.left or self._serves_others:
            self._wait(heard)
            self._processes.reap()
            if self._processes.culprit is not None:
                # The others would wait for it forever.
                self._stop(ask=False)
            self._term_when_due()
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._tell(signal.SIGKILL)
                self._kill_at = time.monotonic() + 1.0
        self._processes.drain()
        if telling is not None:
            telling.finish()
        lost = carrying.finish(self._processes.culprit is None) if carrying is not None else ""
        return self._say(self._processes.culprit, lost)

    def _telling(self) -> Telling | None:
        """Who tells the operator of metrics and checkpoints; None where there is nobody to tell."""
        endpoint, token = os.environ.get(contract.ENDPOINT, ""), os.environ.get(TOKEN, "")
        if not endpoint or not token:
            return None
        order = self._order
        wish = order.remote
        task, number = (wish.task, wish.number) if wish is not None else (order.task, order.number)
        ranks = max(len(order.starts), wish.ranks if wish is not None else 0)
        # What is carried counts when it has arrived, and not before.
        checkpoints = "" if order.carries else order.checkpoints
        work = order.cwd if order.detects else ""
        measuring = Measuring(order.attempt, ranks, order.events, self._processes.printed, work, order.decided)
        return Telling(task, number, measuring, checkpoints, endpoint, token)

    def _carrying(self) -> Carrying | None:
        """Who brings to the operator what must outlive the pod; None where a volume does."""
        endpoint, token = os.environ.get(contract.ENDPOINT, ""), os.environ.get(TOKEN, "")
        if not self._order.carries or not endpoint or not token:
            return None
        operator = Operator(endpoint, token, self._order.task, self._order.number)
        return Carrying(operator, self._order.checkpoints, self._order.outputs)

    def _prepare(self) -> None:
        for folder in (self._order.attempt, *self._order.folders):
            os.makedirs(folder, exist_ok=True)
        for name, text in self._order.files.items():
            path = os.path.join(self._order.attempt, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)

    def _wait(self, heard: int) -> None:
        due = [at for at in (self._term_at, self._kill_at) if at is not None]
        patience = max(0.0, min(due) - time.monotonic()) if due else None
        if patience is not None and self._patient:
            patience = min(patience, LOOK_AGAIN)
        ready, _, _ = select.select([heard], [], [], patience)
        numbers = os.read(heard, 64) if ready else b""
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self._stop(ask=True)

    def _stop(self, *, ask: bool) -> None:
        """End everything within the grace. `ask`: the request comes first, and SIGTERM waits for those who listen for it."""
        if self._kill_at is not None:
            return
        now = time.monotonic()
        self._term_at, self._kill_at = now, now + self._order.grace
        if ask and self._request_stop() and self._listens():
            self._patient = True
            self._term_at = self._kill_at - min(LAST_SECONDS, self._order.grace * LAST_PART)
        self._term_when_due()

    def _term_when_due(self) -> None:
        if self._term_at is None:
            return
        now = time.monotonic()
        if self._patient and not self._listens():
            self._patient = False
            self._term_at = min(self._term_at, now + LINGER)
        if now >= self._term_at:
            self._term_at, self._patient = None, False
            self._tell(signal.SIGTERM)

    def _request_stop(self) -> bool:
        """Let `should_stop()` turn true; whether it does."""
        try:
            with open(os.path.join(self._order.attempt, contract.STOP_FILE), "w", encoding="utf-8"):
                return True
        except OSError:
            return False

    def _listens(self) -> bool:
        shared = self._order.starts[0].env.get(contract.SHARED_DIR, "") if self._order.starts else ""
        return bool(shared) and stop.has_listeners(shared)

    def _tell(self, number: int) -> None:
        self._processes.tell(number)
        if self._remote is not None:
            self._remote.tell(number)

    def _listen(self, given: dict[str, str]) -> dict[str, str]:
        """Listen for other pods where the order says so; what our own processes need to reach theirs."""
        wish = self._order.remote
        if wish is None:
            return {}
        token = os.environ.get(TOKEN, "")
        if not token:
            raise remote.RefusedError("ranks in other pods need the key of the run, and the operator gave none")
        key = remote.key_of(token, wish.attempt)
        start = self._order.starts[0]
        try:
            self._remote = Listener(wish.port, key, start.environment(given), self._order.cwd)
        except OSError as error:
            raise remote.RefusedError(f"port {wish.port} is not free for other pods to start ranks here: {error}") from error
        self._processes.of_others = self._remote.reaped
        self._remote.start()
        return {contract.REMOTE_KEY: key.hex()} if contract.REMOTE_HOSTS in start.env else {}

    def _ranks_elsewhere(self) -> tuple[int, str]:
        """An exit code, and why what says that it ended well did not: a pod with ranks was lost, or never had any. 0: it did."""
        wish = self._order.remote
        if wish is None:
            return 0, ""
        lost = sorted(remote.noted(self._order.attempt, remote.LOST))
        if lost:
            return 1, f"the connection to {', '.join(lost)} was lost: connection closed by peer"
        missed = sorted(set(wish.must_reach) - remote.noted(self._order.attempt, remote.REACHED))
        if not missed:
            return 0, ""
        program = self._order.starts[0].argv[0]
        words = f"{program} started no rank on {', '.join(missed)}, and said nothing: all ran on fewer hosts"
        return CANNOT_RUN, f"{words}; does this MPI read the variables of Open MPI 4 or 5?"

    @property
    def _serves_others(self) -> bool:
        """Whether it must stay for what other pods run here; one that has nothing else to do stays until it is told to end."""
        if self._remote is None:
            return False
        only = not any(start.argv for start in self._order.starts)
        return self._remote.busy or (only and self._kill_at is None)

    def _cannot_run(self, error: OSError | remote.RefusedError) -> int:
        self._processes.tell(signal.SIGKILL)
        if isinstance(error, OSError):
            program = self._order.starts[0].argv[0]
            words = f"{self._order.task} could not start {program!r}: {error.strerror}; is it in the image?"
        else:
            words = f"{self._order.task}: {error}"
        sys.stderr.write(f"fairway: {words}\n")
        _record(ending.encode(self._order.task, 0, CANNOT_RUN, None, words))
        return CANNOT_RUN

    def _say(self, culprit: Process | None, lost: str = "") -> int:
        if culprit is None and lost:
            # The work is done and cannot be had: another attempt begins at the last checkpoint that can.
            sys.stderr.write(f"fairway: {lost}\n")
            _record(ending.encode(self._order.task, 0, NOT_BROUGHT, None, lost))
            return NOT_BROUGHT
        if culprit is None and not any(start.argv for start in self._order.starts):
            # It was there for others, and somebody ended it before they were done.
            _record(ending.encode(self._order.task, 0, None, signal.SIGTERM))
            return ending.exit_code(None, signal.SIGTERM)
        failed, words = self._ranks_elsewhere() if culprit is None else (0, "")
        if failed:
            sys.stderr.write(f"fairway: {words}\n")
            _record(ending.encode(self._order.task, 0, failed, None, words))
            return failed
        status = culprit.status if culprit is not None and culprit.status is not None else 0
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = None if number is not None else os.WEXITSTATUS(status)
        rank = culprit.rank if culprit is not None else 0
        _record(ending.encode(self._order.task, rank, code, number))
        return ending.exit_code(code, number)


def _hear(*numbers: signal.Signals) -> int:
    """From now on each of these signals is a byte in the pipe that is returned; none is lost between two looks."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    for number in numbers:
        signal.signal(number, lambda _number, _frame: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


def _record(text: str) -> None:
    try:
        with open(TERMINATION_LOG, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        # Not in a container, or one that keeps no message: the exit code says the most of it.
        return


def main() -> int:
    """Carry out the order in `FAIRWAY_POD_ORDER`."""
    text = os.environ.get(VARIABLE)
    if text is None:
        sys.stderr.write(f"fairway: {VARIABLE} is not set: this program is started by a cluster's operator\n")
        return 2
    return Runner(PodOrder.decode(text)).run()


if __name__ == "__main__":
    sys.exit(main())
