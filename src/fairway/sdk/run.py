"""A run as returned by clients: its view, and the client methods that concern it."""

from __future__ import annotations

from typing import Any, Protocol

from fairway.views.job import JobList, JobView


class _AnyClient(Protocol):
    """The methods of a client of either kind."""

    def __getattr__(self, name: str) -> Any: ...


class Run(JobView, frozen=True, dict=True):
    """A run with its methods: `client.submit("job.yaml").wait()`.

    Its fields are a snapshot from the time of the request. The methods of a run from an `AsyncClient` are awaited.
    """

    @property
    def client(self) -> _AnyClient:
        """The client that returned the run."""
        owner: _AnyClient = self.__dict__["client"]
        return owner

    def refresh(self) -> Any:
        """Return the current state of the run: `Client.get`."""
        return self.client.get(self)

    def wait(self, timeout: float | None = None) -> Any:
        """Wait until the run has ended, in any way, and return it: `Client.wait`."""
        return self.client.wait(self, timeout)

    def result(self, timeout: float | None = None) -> Any:
        """Return the function's value on rank 0: `Client.result`."""
        return self.client.result(self, timeout)

    def logs(
        self,
        *,
        follow: bool = False,
        role: str = "",
        index: int | None = None,
        tail: int | None = None,
        grep: str = "",
        timestamps: bool = False,
    ) -> Any:
        """Yield the output of the tasks line by line: `Client.logs`."""
        return self.client.logs(self, follow=follow, role=role, index=index, tail=tail, grep=grep, timestamps=timestamps)

    def metrics(self, metric: str = "", *, limit: int = 2000) -> Any:
        """Return the metrics that the run reported: `Client.metrics`."""
        return self.client.metrics(self, metric, limit=limit)

    def events(self, *, limit: int = 1000) -> Any:
        """Return the events of the run: `Client.events`."""
        return self.client.events(self, limit=limit)

    def why(self) -> Any:
        """Return the reason for the run's state, and what would help: `Client.why`."""
        return self.client.why(self)

    def top(self) -> Any:
        """Return the current use of each task: `Client.top`."""
        return self.client.top(self)

    def stop(self, *, now: bool = False) -> Any:
        """Stop the run: `Client.stop`."""
        return self.client.stop(self, now=now)

    def delete(self) -> Any:
        """Delete the run: `Client.delete`."""
        return self.client.delete(self)


class RunList(JobList, frozen=True):
    """A page of runs, newest first."""

    jobs: tuple[Run, ...]


def attach(value: object, client: object) -> None:
    """Set the client of returned runs."""
    for run in value.jobs if isinstance(value, RunList) else (value,):
        if isinstance(run, Run):
            run.__dict__["client"] = client
