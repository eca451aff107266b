"""Interactive access to a running task: input, window size, and its folder and environment."""

from __future__ import annotations

from fairway.app.port.port import TaskSite
from fairway.engines.local.home import EngineHome
from fairway.engines.local.supervision import control_socket
from fairway.errors import ConflictError, UnavailableError
from fairway.state.task import TaskKey

PATIENCE = 2.0
INTERRUPT = b"\x03"
"""Ctrl-C."""


class TaskAccess:
    """Sends requests to the supervisors of running tasks."""

    def __init__(self, home: EngineHome) -> None:
        self._home = home

    def type_in(self, key: TaskKey, data: bytes) -> None:
        """Send bytes to the first process's terminal; empty data means end of input.

        Ctrl-C alone also reaches a task without a terminal, as SIGINT.
        """
        if data == INTERRUPT:
            self._ask(key, {"op": "interrupt"})
        else:
            self._ask(key, {"op": "input", "data": data.decode("utf-8", "surrogateescape")} if data else {"op": "end"})

    def resize(self, key: TaskKey, rows: int, columns: int) -> None:
        """Set the window size of the task's terminal."""
        self._ask(key, {"op": "resize", "rows": rows, "columns": columns})

    def look(self, key: TaskKey) -> TaskSite:
        """Return folder and environment of the task's first process, as its supervisor set them."""
        try:
            answer = control_socket.ask(str(self._home.attempt(key)), {"op": "environment"}, PATIENCE)
        except OSError as error:
            message = f"{key.task} of {key.job} is not running"
            raise ConflictError(message, fix=f"its files are in {self._home.job(key.run)}") from error
        env = answer.get("env")
        return TaskSite(str(answer.get("cwd", "")), dict(env) if isinstance(env, dict) else {})

    def _ask(self, key: TaskKey, request: control_socket.Request) -> None:
        try:
            answer = control_socket.ask(str(self._home.attempt(key)), request, PATIENCE)
        except OSError as error:
            message = f"{key.task} of {key.job} cannot be reached: it has ended or has not started"
            raise UnavailableError(message, fix=f"see `fairway get {key.job}`") from error
        if not answer.get("ok"):
            raise ConflictError(str(answer.get("error") or f"{key.task} has no terminal"))
