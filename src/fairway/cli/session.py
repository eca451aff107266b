"""The session of a verb: its context and namespace, its output, and its connection to the daemon."""

from __future__ import annotations

import os
import sys

from fairway.cli import context as cli_context
from fairway.cli import default_file
from fairway.cli.context import LOCAL
from fairway.sdk.transport.daemon import DaemonConnection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fairway.cli.argument_parser import CommandOptions
    from fairway.sdk.transport.cluster import ClusterConnection
    from fairway.sdk.transport.http import Query, SocketReply


class CommandSession:
    """A running command: its options, context, namespace and daemon."""

    def __init__(self, options: CommandOptions, *, here: bool = False) -> None:
        """Choose context and namespace; `here` forces this machine, whatever context is selected."""
        self.options = options
        settings = default_file.CommandDefaults.read(os.getcwd())
        namespace = options.text("namespace") or os.environ.get("FAIRWAY_NAMESPACE", "") or settings.text("namespace")
        context = options.text("context") or os.environ.get("FAIRWAY_CONTEXT", "") or settings.text("context")
        self.context, kubeconfig = (LOCAL, "") if here else cli_context.find(context)
        settings.fill(options)
        self.cluster: ClusterConnection | None = None
        """The cluster, if the context is one."""
        if self.context == LOCAL:
            self.namespace = namespace or "default"
            self.daemon: DaemonConnection | ClusterConnection = DaemonConnection(say=say)
            return
        from fairway.sdk.transport.cluster import ClusterConnection

        self.daemon = self.cluster = ClusterConnection(self.context, kubeconfig, say=say)
        self.context = self.cluster.target.context
        self.namespace = namespace or self.cluster.target.namespace

    @property
    def here(self) -> DaemonConnection:
        """The daemon of this machine."""
        assert isinstance(self.daemon, DaemonConnection)
        return self.daemon

    @property
    def output(self) -> str:
        """The requested output format; `table` by default."""
        return self.options.text("format", "table")

    def announce(self) -> None:
        """Print context and namespace. Every verb that changes something calls this first."""
        say(f"on {self.context} / {self.namespace}")

    def call(
        self, method: str, path: str, query: Query | None = None, body: object = None, *, timeout: float | None = None
    ) -> SocketReply:
        """Send a request to the daemon, in this namespace."""
        data = b""
        if body is not None:
            import json

            data = json.dumps(body).encode()
        return self.daemon.request(method, path, {"namespace": self.namespace, **(query or {})}, data, timeout=timeout)

    def fetch(self, path: str, query: Query | None = None) -> Any:
        """Send a GET request and return the decoded value."""
        import json

        return json.loads(self.call("GET", path, query).read())

    def change(self, method: str, path: str, body: object = None, query: Query | None = None, *, key: str = "") -> bytes:
        """Send a request that changes something exactly once; if the reply is lost, the request is retried.

        Only for requests that honour the idempotency key, or that change nothing the second time.
        """
        from fairway.sdk.transport import retry

        full_query = {**(query or {}), retry.KEY: key or retry.make_key()}
        return retry.persist(lambda: self.call(method, path, full_query, body).read(), self.daemon, method, path, self.namespace)

    def send(self, method: str, path: str, body: object = None, query: Query | None = None, *, key: str = "") -> Any:
        """Send a request as `change` does and return the decoded value; None if the reply is empty."""
        import json

        data = self.change(method, path, body, query, key=key)
        return json.loads(data) if data else None

    def send_raw(self, path: str, data: bytes, query: Query | None = None) -> bytes:
        """Send raw bytes and return the reply."""
        return self.daemon.request(
            "POST", path, {"namespace": self.namespace, **(query or {})}, data, kind="application/octet-stream"
        ).read()

    def show(self, path: str, query: Query | None = None) -> None:
        """Print the view at `path`, rendered by the daemon in the requested format."""
        write(self.call("GET", path, {**(query or {}), **self.look()}).read())

    def look(self) -> dict[str, str | int | bool]:
        """Return the query parameters that tell the daemon how to render."""
        return {"output": self.output, "width": terminal_width(), "colour": has_colour(1)}


_quiet = False


def be_quiet() -> None:
    """Suppress all later output of `say`. Errors are still printed."""
    global _quiet
    _quiet = True


def say(text: str) -> None:
    """Print a message for people on standard error, apart from data."""
    if _quiet:
        return
    sys.stdout.flush()
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def write(data: bytes) -> None:
    """Write data to standard output, byte for byte, and flush."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_error(data: bytes) -> None:
    """Write data to standard error, byte for byte, and flush."""
    sys.stderr.flush()
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()


def show_line(text: str) -> None:
    """Write a line of data to standard output."""
    write(f"{text}\n".encode("utf-8", "surrogateescape"))


def write_json(value: object) -> None:
    """Write a value to standard output as indented JSON."""
    import json

    write((json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape"))


def is_terminal(descriptor: int) -> bool:
    """Whether the descriptor is a terminal."""
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def has_colour(descriptor: int) -> bool:
    """Whether to use colours on the descriptor: it is a terminal or FORCE_COLOR is set, and no variable forbids them."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return is_terminal(descriptor) or bool(os.environ.get("FORCE_COLOR"))


def terminal_height() -> int:
    """Return the number of lines of the terminal; 0 if there is none."""
    try:
        return os.get_terminal_size(1).lines
    except OSError:
        return 0


def terminal_width() -> int:
    """Return the number of columns of the terminal; 0 if there is none, which means no limit."""
    if not is_terminal(1):
        return 0
    columns = os.environ.get("COLUMNS", "")
    try:
        return int(columns) if columns.isdecimal() else os.get_terminal_size(1).columns
    except OSError:
        return 0
