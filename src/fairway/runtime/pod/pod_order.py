"""The pod order: the container's instructions, as text in one variable. Standard library only, Python 3.9 and newer."""

from __future__ import annotations

import json
import os
from typing import Any

from fairway.runtime import task_contract

VARIABLE = "FAIRWAY_POD_ORDER"
TOKEN = "FAIRWAY_TOKEN"
"""Token that authenticates the pod to the operator; the pod's first process has it, the program does not."""


class ProcessStart:
    """One process: its command, and its environment in addition to the container's.

    Without a command it is only the environment for programs that other pods start here.
    """

    def __init__(self, argv: list[str], env: dict[str, str], gives_way: list[str]) -> None:
        self.argv = argv
        self.env = env
        self.gives_way = frozenset(gives_way)
        """Names of variables that are only defaults: a value in the container's environment takes precedence."""

    def environment(self, given: dict[str, str]) -> dict[str, str]:
        """Return the complete environment; `PYTHONPATH` is put in front of the existing one."""
        result = {**given, **{name: value for name, value in self.env.items() if name not in self.gives_way or name not in given}}
        if task_contract.UNBUFFERED in given and task_contract.UNBUFFERED in self.gives_way:
            result.pop(task_contract.LINES, None)
        existing_path = given.get("PYTHONPATH", "")
        if existing_path and "PYTHONPATH" in self.env:
            result["PYTHONPATH"] = self.env["PYTHONPATH"] + os.pathsep + existing_path
        return result


class RemoteOrder:
    """Additional instructions for a pod of an MPI run: other pods start ranks in it."""

    def __init__(self, port: int, attempt: int, task: str, number: int, ranks: int, must_reach: list[str] | None = None) -> None:
        self.port = port
        """Port to listen on."""
        self.attempt = attempt
        """Attempt of the gang; each attempt has its own key."""
        self.task = task
        """The task for which the ranks in this pod report: the run's first rank reports for the task that started it, other ranks
        for their own pod."""
        self.number = number
        """Attempt of that task."""
        self.ranks = ranks
        """Number of ranks in this pod."""
        self.must_reach = must_reach or []
        """Hosts of ranks that this pod starts. An MPI that does not support Fairway's agent starts all of them here, without an
        error."""


class PodOrder:
    """The task: folders and files to create, processes to start."""

    def __init__(
        self,
        task: str,
        cwd: str,
        attempt: str,
        starts: list[ProcessStart],
        files: dict[str, str] | None = None,
        folders: list[str] | None = None,
        grace: float = 30.0,
        number: int = 0,
        checkpoints: str = "",
        remote: RemoteOrder | None = None,
        environment: str = "",
        carries: bool = False,
        outputs: dict[str, str] | None = None,
        pattern: str = "",
        events: str = "",
        detects: bool = False,
        decided: list[str] | None = None,
    ) -> None:
        self.task = task
        """`worker-0`."""
        self.cwd = cwd
        self.attempt = attempt
        """Folder of the attempt."""
        self.starts = starts
        self.files = files or {}
        """Text files to create in the attempt's folder, by relative path."""
        self.folders = folders or []
        """Further folders to create."""
        self.grace = grace
        """Seconds between SIGTERM and SIGKILL."""
        self.number = number
        """Number of the attempt."""
        self.checkpoints = checkpoints
        """Folder in which complete checkpoints appear."""
        self.remote = remote
        """How to listen for programs that other pods start here; None: it does not listen."""
        self.environment = environment
        """Folder with the link to the virtual environment of the processes; empty: the image's own interpreter."""
        self.carries = carries
        """Whether to send checkpoints and outputs to the operator, because the pod's disk is deleted with it."""
        self.outputs = outputs or {}
        """Folders of outputs, by name."""
        self.pattern = pattern
        """Expression that finds metrics in the output of the processes; empty: none."""
        self.events = events
        """Folder in which TensorBoard's event files appear."""
        self.detects = detects
        """Whether metrics are detected in the usual lines and files."""
        self.decided = decided or []
        """Names used by stop conditions; these are not detected."""

    def encode(self) -> str:
        """Return the order as text."""
        starts = [[start.argv, start.env, sorted(start.gives_way)] for start in self.starts]
        plain: dict[str, Any] = {**vars(self), "starts": starts, "remote": self.remote and vars(self.remote)}
        return json.dumps(plain, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> PodOrder:
        """Return the order that `encode` wrote."""
        plain = json.loads(text)
        plain["starts"] = [ProcessStart(argv, env, gives_way) for argv, env, gives_way in plain["starts"]]
        plain["remote"] = RemoteOrder(**plain["remote"]) if plain.get("remote") else None
        return cls(**plain)
