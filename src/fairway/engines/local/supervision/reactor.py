"""Waits for descriptors and runs their callbacks. Standard library only."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable

READ = select.POLLIN
WRITE = select.POLLOUT


class Reactor:
    """One `poll` for everything that a supervisor waits for."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._calls: dict[int, Callable[[int], None]] = {}

    def watch(self, descriptor: int, events: int, call: Callable[[int], None]) -> None:
        """Run the callback with the events when any of them happens; a second call replaces the first."""
        self._calls[descriptor] = call
        self._poll.register(descriptor, events)

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor. Call it before closing the descriptor."""
        if self._calls.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def wait(self, seconds: float | None) -> None:
        """Wait for events, at most that long, and run their callbacks."""
        timeout = None if seconds is None else max(0, int(seconds * 1000) + 1)
        for descriptor, events in self._poll.poll(timeout):
            call = self._calls.get(descriptor)
            if call is not None:
                call(events)


class SignalSource:
    """Turns signals into events of a reactor."""

    def __init__(self, reactor: Reactor, calls: dict[signal.Signals, Callable[[], None]]) -> None:
        self._calls = {int(number): call for number, call in calls.items()}
        self._read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in calls:
            signal.signal(number, lambda *_: None)
        reactor.watch(self._read, READ, self._arrived)

    def _arrived(self, _events: int) -> None:
        # Signals of one kind coalesce: callbacks check the actual state.
        for number in sorted(set(os.read(self._read, 4096))):
            call = self._calls.get(number)
            if call is not None:
                call()
