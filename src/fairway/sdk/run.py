"""A run as clients return it: what is known of it, and the verbs that are about it."""

from __future__ import annotations

from typing import Any, Protocol

from fairway.views.job import JobList, JobView


class _Asks(Protocol):
    """The verbs of a client, either kind."""

    def __getattr__(self, name: str) -> Any: ...


class Run(JobView, frozen=True, dict=True):
    """One run, and what can be done with it: `client.submit("job.yaml").wait()`.

    Its fields are those of the moment at which it was asked for. Of an `AsyncClient` the methods are awaited, as its own are.
    """

    @property
    def client(self) -> _Asks:
        """The client that returned it."""
        found: _Asks = self.__dict__["client"]
        return found

    def refresh(self) -> Any:
        """The run as it is now: `Client.get`."""
        return self.client.get(self)

    def wait(self, timeout: float | None = None) -> Any:
        """The run when it has ended, however it did: `Client.wait`."""
        return self.client.wait(self, timeout)

    def result(self, timeout: float | None = None) -> Any:
        """What the function returned on rank 0: `Client.result`."""
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
        """What the tasks printed, line by line: `Client.logs`."""
        return self.client.logs(self, follow=follow, role=role, index=index, tail=tail, grep=grep, timestamps=timestamps)

    def metrics(self, metric: str = "", *, limit: int = 2000) -> Any:
        """The numbers that it reported: `Client.metrics`."""
        return self.client.metrics(self, metric, limit=limit)

    def events(self, *, limit: int = 1000) -> Any:
        """What happened to it: `Client.events`."""
        return self.client.events(self, limit=limit)

    def why(self) -> Any:
        """Why it is where it is, and what would help: `Client.why`."""
        return self.client.why(self)

    def top(self) -> Any:
        """What each of its tasks uses now: `Client.top`."""
        return self.client.top(self)

    def stop(self, *, now: bool = False) -> Any:
        """Ask it to end: `Client.stop`."""
        return self.client.stop(self, now=now)

    def delete(self) -> Any:
        """Forget it: `Client.delete`."""
        return self.client.delete(self)


class RunList(JobList, frozen=True):
    """A page of runs, newest first."""

    jobs: tuple[Run, ...]


def attach(value: object, client: object) -> None:
    """Let runs know the client that returned them."""
    for run in value.jobs if isinstance(value, RunList) else (value,):
        if isinstance(run, Run):
            run.__dict__["client"] = client
