"""What the container is told to do, as text in one variable. Standard library only, Python 3.9 and newer."""

from __future__ import annotations

import json
import os
from typing import Any

from fairway.runtime import contract

VARIABLE = "FAIRWAY_POD_ORDER"
TOKEN = "FAIRWAY_TOKEN"
"""Proves to the operator who speaks; our first process has it, the program does not."""


class Start:
    """One process: what to run, and what its environment has beyond the container's.

    With nothing to run it is only the environment of what other pods start here.
    """

    def __init__(self, argv: list[str], env: dict[str, str], gives_way: list[str]) -> None:
        self.argv = argv
        self.env = env
        self.gives_way = frozenset(gives_way)
        """Names that are only defaults: what the container's environment has already stays."""

    def environment(self, given: dict[str, str]) -> dict[str, str]:
        """The whole environment; `PYTHONPATH` is joined in front of what is there."""
        found = {**given, **{name: value for name, value in self.env.items() if name not in self.gives_way or name not in given}}
        if contract.UNBUFFERED in given and contract.UNBUFFERED in self.gives_way:
            found.pop(contract.LINES, None)
        before = given.get("PYTHONPATH", "")
        if before and "PYTHONPATH" in self.env:
            found["PYTHONPATH"] = self.env["PYTHONPATH"] + os.pathsep + before
        return found


class Remote:
    """What a pod of an MPI run is told beyond the rest: other pods start ranks in it."""

    def __init__(self, port: int, attempt: int, task: str, number: int, ranks: int, must_reach: list[str] | None = None) -> None:
        self.port = port
        """Where it listens."""
        self.attempt = attempt
        """The gang's attempt: pods of another one have another key."""
        self.task = task
        """For whom the ranks in this pod speak: the run's first rank for the task that started it, others for their own pod."""
        self.number = number
        """Which attempt of that task it is."""
        self.ranks = ranks
        """How many ranks there are in this pod."""
        self.must_reach = must_reach or []
        """Hosts of ranks that this pod starts: an MPI that does not know our agent starts them all here, and says nothing."""


class PodOrder:
    """The task: folders and files to make, processes to start."""

    def __init__(
        self,
        task: str,
        cwd: str,
        attempt: str,
        starts: list[Start],
        files: dict[str, str] | None = None,
        folders: list[str] | None = None,
        grace: float = 30.0,
        number: int = 0,
        checkpoints: str = "",
        remote: Remote | None = None,
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
        """The attempt's own folder."""
        self.starts = starts
        self.files = files or {}
        """Text files for the attempt's folder, by relative path."""
        self.folders = folders or []
        """Others to make."""
        self.grace = grace
        """Seconds that the processes get between SIGTERM and SIGKILL."""
        self.number = number
        """Which attempt this is."""
        self.checkpoints = checkpoints
        """Where finished checkpoints appear."""
        self.remote = remote
        """How it listens for what other pods want started here; None: it does not."""
        self.environment = environment
        """The folder that names the virtual environment of the processes; empty: the image's own interpreter."""
        self.carries = carries
        """Whether checkpoints and outputs are brought to the operator: the pod's disk goes with it."""
        self.outputs = outputs or {}
        """Folders of outputs, by name."""
        self.pattern = pattern
        """An expression that finds metrics in what the processes print; empty: none are there."""
        self.events = events
        """Where TensorBoard's event files appear."""
        self.detects = detects
        """Whether metrics are looked for in the usual lines and files."""
        self.decided = decided or []
        """Names that stop conditions ask for: those are not detected."""

    def encode(self) -> str:
        """As text."""
        starts = [[start.argv, start.env, sorted(start.gives_way)] for start in self.starts]
        plain: dict[str, Any] = {**vars(self), "starts": starts, "remote": self.remote and vars(self.remote)}
        return json.dumps(plain, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> PodOrder:
        """What `encode` wrote."""
        plain = json.loads(text)
        plain["starts"] = [Start(argv, env, gives_way) for argv, env, gives_way in plain["starts"]]
        plain["remote"] = Remote(**plain["remote"]) if plain.get("remote") else None
        return cls(**plain)
