"""`python -m fairway.runtime.pod`: the first process of the container. Standard library only, Python 3.9 and newer."""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from fairway.runtime import stop, task_contract
from fairway.runtime.pod import environment, operator_tls, remote_channel, termination_message
from fairway.runtime.pod.metric_collector import MetricCollector
from fairway.runtime.pod.metric_reporter import MetricReporter
from fairway.runtime.pod.pod_order import TOKEN, VARIABLE, PodOrder
from fairway.runtime.pod.process_group import PodProcess, PodProcesses
from fairway.runtime.pod.remote_listener import RemoteListener
from fairway.runtime.pod.upload import CheckpointUploader, OperatorUploads

TERMINATION_LOG = "/dev/termination-log"
CANNOT_RUN = 127
LOOK_AGAIN = 0.1
"""Interval in seconds at which to check whether a program still listens for stop requests."""
LINGER = 0.3
"""Seconds until SIGTERM once no program listens any more."""
LAST_PART = 0.2
LAST_SECONDS = 5.0
"""A program that listens but has not ended gets SIGTERM this fraction of the grace period before its end, at most `LAST_SECONDS`
before it."""
NOT_BROUGHT = 74
"""Exit code when the program succeeded, but its results could not be sent to the operator (EX_IOERR)."""


class PodRunner:
    """Runs one task from its order to its end."""

    def __init__(self, order: PodOrder) -> None:
        self._order = order
        self._processes = PodProcesses(order)
        self._term_at: float | None = None
        self._kill_at: float | None = None
        self._patient = False
        self._remote: RemoteListener | None = None

    def run(self) -> int:
        """Start the processes, wait for them, stop them; return the exit code of the container."""
        signal_pipe = _hear(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        self._prepare()
        variables = {name: value for name, value in os.environ.items() if name not in (VARIABLE, TOKEN, operator_tls.AUTHORITY)}
        if self._order.environment:
            variables = environment.activated(variables, self._order.environment)
        try:
            variables |= self._listen(variables)
            self._processes.start(variables)
        except (OSError, remote_channel.AuthenticationError) as error:
            return self._cannot_run(error)
        telling, carrying = self._telling(), self._carrying()
        for thread in (telling, carrying):
            if thread is not None:
                thread.start()
        while self._processes.left or self._serves_others:
            self._wait(signal_pipe)
            self._processes.reap()
            if self._processes.culprit is not None:
                # The other processes would wait for it forever.
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

    def _telling(self) -> MetricReporter | None:
        """Return the thread that sends metrics and checkpoints to the operator; None if no operator is configured."""
        endpoint, token = os.environ.get(task_contract.ENDPOINT, ""), os.environ.get(TOKEN, "")
        if not endpoint or not token:
            return None
        order = self._order
        remote_order = order.remote
        task, number = (remote_order.task, remote_order.number) if remote_order is not None else (order.task, order.number)
        ranks = max(len(order.starts), remote_order.ranks if remote_order is not None else 0)
        # A checkpoint that is sent to the operator counts only when it has arrived.
        checkpoints = "" if order.carries else order.checkpoints
        work = order.cwd if order.detects else ""
        measuring = MetricCollector(order.attempt, ranks, order.events, self._processes.printed, work, order.decided)
        return MetricReporter(task, number, measuring, checkpoints, endpoint, token)

    def _carrying(self) -> CheckpointUploader | None:
        """Return the thread that sends the operator the data that must outlive the pod; None if a volume keeps it."""
        endpoint, token = os.environ.get(task_contract.ENDPOINT, ""), os.environ.get(TOKEN, "")
        if not self._order.carries or not endpoint or not token:
            return None
        operator = OperatorUploads(endpoint, token, self._order.task, self._order.number)
        return CheckpointUploader(operator, self._order.checkpoints, self._order.outputs)

    def _prepare(self) -> None:
        for folder in (self._order.attempt, *self._order.folders):
            os.makedirs(folder, exist_ok=True)
        for name, text in self._order.files.items():
            path = os.path.join(self._order.attempt, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)

    def _wait(self, heard: int) -> None:
        due = [deadline for deadline in (self._term_at, self._kill_at) if deadline is not None]
        patience = max(0.0, min(due) - time.monotonic()) if due else None
        if patience is not None and self._patient:
            patience = min(patience, LOOK_AGAIN)
        ready, _, _ = select.select([heard], [], [], patience)
        numbers = os.read(heard, 64) if ready else b""
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self._stop(ask=True)

    def _stop(self, *, ask: bool) -> None:
        """Stop everything within the grace period.

        With `ask`, request the stop first, and delay SIGTERM for programs that listen for stop requests.
        """
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
        """Make `should_stop()` return true; return whether that worked."""
        try:
            with open(os.path.join(self._order.attempt, task_contract.STOP_FILE), "w", encoding="utf-8"):
                return True
        except OSError:
            return False

    def _listens(self) -> bool:
        shared = self._order.starts[0].env.get(task_contract.SHARED_DIR, "") if self._order.starts else ""
        return bool(shared) and stop.has_listeners(shared)

    def _tell(self, number: int) -> None:
        self._processes.tell(number)
        if self._remote is not None:
            self._remote.tell(number)

    def _listen(self, given: dict[str, str]) -> dict[str, str]:
        """Listen for other pods if the order says so.

        Return the variables that this task's processes need to reach the listeners of other pods.
        """
        remote_order = self._order.remote
        if remote_order is None:
            return {}
        token = os.environ.get(TOKEN, "")
        if not token:
            raise remote_channel.AuthenticationError(
                "ranks in other pods need the key of the run, but the operator did not provide it"
            )
        key = remote_channel.key_of(token, remote_order.attempt)
        start = self._order.starts[0]
        try:
            self._remote = RemoteListener(remote_order.port, key, start.environment(given), self._order.cwd)
        except OSError as error:
            raise remote_channel.AuthenticationError(
                f"port {remote_order.port}, through which other pods start ranks here, is not free: {error}"
            ) from error
        self._processes.of_others = self._remote.reaped
        self._remote.start()
        return {task_contract.REMOTE_KEY: key.hex()} if task_contract.REMOTE_HOSTS in start.env else {}

    def _ranks_elsewhere(self) -> tuple[int, str]:
        """Return an exit code and a reason if ranks in other pods failed without an error of the launcher; else 0.

        A pod with ranks was lost, or never got any.
        """
        remote_order = self._order.remote
        if remote_order is None:
            return 0, ""
        lost = sorted(remote_channel.noted(self._order.attempt, remote_channel.LOST))
        if lost:
            return 1, f"the connection to {', '.join(lost)} was lost: connection closed by peer"
        missed = sorted(set(remote_order.must_reach) - remote_channel.noted(self._order.attempt, remote_channel.REACHED))
        if not missed:
            return 0, ""
        program = self._order.starts[0].argv[0]
        message = f"{program} started no rank on {', '.join(missed)} and reported no error: all ranks ran on fewer hosts"
        return CANNOT_RUN, f"{message}; does this MPI read the variables of Open MPI 4 or 5?"

    @property
    def _serves_others(self) -> bool:
        """Whether the pod must stay for programs of other pods. A pod without processes of its own stays until it is stopped."""
        if self._remote is None:
            return False
        only = not any(start.argv for start in self._order.starts)
        return self._remote.busy or (only and self._kill_at is None)

    def _cannot_run(self, error: OSError | remote_channel.AuthenticationError) -> int:
        self._processes.tell(signal.SIGKILL)
        if isinstance(error, OSError):
            program = self._order.starts[0].argv[0]
            message = f"{self._order.task} could not start {program!r}: {error.strerror}; is it in the image?"
        else:
            message = f"{self._order.task}: {error}"
        sys.stderr.write(f"fairway: {message}\n")
        _record(termination_message.encode(self._order.task, 0, CANNOT_RUN, None, message))
        return CANNOT_RUN

    def _say(self, culprit: PodProcess | None, lost: str = "") -> int:
        if culprit is None and lost:
            # The work is done but its results are lost: another attempt starts at the last checkpoint that was stored.
            sys.stderr.write(f"fairway: {lost}\n")
            _record(termination_message.encode(self._order.task, 0, NOT_BROUGHT, None, lost))
            return NOT_BROUGHT
        if culprit is None and not any(start.argv for start in self._order.starts):
            # It ran only programs of other pods, and was stopped before they were done.
            _record(termination_message.encode(self._order.task, 0, None, signal.SIGTERM))
            return termination_message.exit_code(None, signal.SIGTERM)
        failure_code, message = self._ranks_elsewhere() if culprit is None else (0, "")
        if failure_code:
            sys.stderr.write(f"fairway: {message}\n")
            _record(termination_message.encode(self._order.task, 0, failure_code, None, message))
            return failure_code
        status = culprit.status if culprit is not None and culprit.status is not None else 0
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = None if number is not None else os.WEXITSTATUS(status)
        rank = culprit.rank if culprit is not None else 0
        _record(termination_message.encode(self._order.task, rank, code, number))
        return termination_message.exit_code(code, number)


def _hear(*numbers: signal.Signals) -> int:
    """Write each of these signals as a byte to a pipe from now on, and return its read end.

    No signal is lost between two reads.
    """
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
        # Not in a container, or in one that keeps no message: the exit code has the most important part.
        return


def main() -> int:
    """Execute the order in `FAIRWAY_POD_ORDER`."""
    text = os.environ.get(VARIABLE)
    if text is None:
        sys.stderr.write(f"fairway: {VARIABLE} is not set: this program is started by a cluster's operator\n")
        return 2
    return PodRunner(PodOrder.decode(text)).run()


if __name__ == "__main__":
    sys.exit(main())
