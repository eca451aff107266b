"""An interpreter that has imported its program's modules in advance, and waits to run it. Standard library only."""

from __future__ import annotations

import json
import os
import signal
import socket

from fairway.engines.local.supervision import order
from fairway.engines.local.supervision.process.process_start import ProcessStarter, StandardStreams

VARIABLE = "FAIRWAY_SPARE"
PROBE = "probe"
PROVEN = 42
"""Equal to those of `fairway.runtime.spare.sitecustomize`; the fork server does not import what is made for tasks."""
_PATIENCE = 2.0
"""Seconds that a spare gets to wake up."""


class SpareProcess:
    """A waiting child process. It is used as a whole or not at all."""

    def __init__(self, request: order.TaskOrder) -> None:
        """Start the request's first command, whose variable tells what to import. Raises `OSError` when it would not wait."""
        self._program, *_ = self._argv = request.commands[0].argv
        self._request = request
        env = {**request.env, **request.commands[0].env}
        instructions = json.loads(env[VARIABLE])
        self._prove({**env, VARIABLE: PROBE})
        self._ours, theirs = socket.socketpair()
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            instructions["descriptor"] = theirs.fileno()
            self.pid = self._start(self._argv, {**env, VARIABLE: json.dumps(instructions)})
        self._ours.setblocking(False)
        self._warm = False

    def fileno(self) -> int:
        """Return the descriptor for `poll`: the spare reports that it is warm, or closes the channel on failure."""
        return self._ours.fileno()

    def listen(self) -> bool:
        """Read the spare's message; return False when it has closed the channel."""
        try:
            self._warm = self._ours.recv(1) == b"w"
        except BlockingIOError:
            return True
        return self._warm

    def become(self, env: dict[str, str], cwd: str, streams: StandardStreams) -> bool:
        """Turn the spare into the program, with this environment, folder and streams.

        If it is not ready, end it and return False.
        """
        if self.listen() and self._warm and not streams.terminal:
            text = json.dumps({"env": env, "cwd": cwd, "name": self._program}).encode()
            try:
                self._ours.settimeout(_PATIENCE)
                order.send(self._ours, text, [streams.input, streams.output, streams.error])
                if self._ours.recv(1) == b"t":
                    self._ours.close()
                    return True
            except OSError:
                # It died, or does not wake up; a new process is started instead.
                pass
        self.end()
        return False

    def end(self) -> None:
        """Kill and reap the spare."""
        self._ours.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def _prove(self, env: dict[str, str]) -> None:
        """Start the interpreter once without the program, to verify that it would wait."""
        _, status = os.waitpid(self._start([self._program, "-c", "raise SystemExit(1)"], env), 0)
        if os.waitstatus_to_exitcode(status) != PROVEN:
            message = f"{self._program} does not load Fairway's sitecustomize, which makes it wait"
            raise OSError(message)

    def _start(self, argv: list[str], env: dict[str, str]) -> int:
        nest = ProcessStarter(self._request, None)
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        pid = nest.start(0, argv, env, StandardStreams(nothing, nothing))
        os.close(nothing)
        nest.failures()
        return pid
