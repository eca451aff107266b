"""What every verb works with: where it acts, how it shows things, and the way to the daemon."""

from __future__ import annotations

import os
import sys

from fairway.cli import contexts, defaults
from fairway.cli.contexts import LOCAL
from fairway.sdk.daemon import Daemon

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fairway.cli.grammar import Options
    from fairway.sdk.cluster import Cluster
    from fairway.sdk.wire import Query, Reply


class Session:
    """One command on its way."""

    def __init__(self, options: Options, *, here: bool = False) -> None:
        """`here`: it is about this machine, wherever others act."""
        self.options = options
        settings = defaults.Defaults.read(os.getcwd())
        given = options.text("namespace") or os.environ.get("FAIRWAY_NAMESPACE", "") or settings.text("namespace")
        chosen = options.text("context") or os.environ.get("FAIRWAY_CONTEXT", "") or settings.text("context")
        self.context, kubeconfig = (LOCAL, "") if here else contexts.find(chosen)
        settings.fill(options)
        self.cluster: Cluster | None = None
        """Where it acts on one."""
        if self.context == LOCAL:
            self.namespace = given or "default"
            self.daemon: Daemon | Cluster = Daemon(say=say)
            return
        from fairway.sdk.cluster import Cluster

        self.daemon = self.cluster = Cluster(self.context, kubeconfig, say=say)
        self.context = self.cluster.target.context
        self.namespace = given or self.cluster.target.namespace

    @property
    def here(self) -> Daemon:
        """This machine's daemon."""
        assert isinstance(self.daemon, Daemon)
        return self.daemon

    @property
    def output(self) -> str:
        """The format asked for; `table` when nothing was said."""
        return self.options.text("format", "table")

    def announce(self) -> None:
        """Say where this acts. Every verb that changes something begins with it."""
        say(f"on {self.context} / {self.namespace}")

    def call(
        self, method: str, path: str, query: Query | None = None, body: object = None, *, timeout: float | None = None
    ) -> Reply:
        """One exchange with the daemon, in this namespace."""
        data = b""
        if body is not None:
            import json

            data = json.dumps(body).encode()
        return self.daemon.request(method, path, {"namespace": self.namespace, **(query or {})}, data, timeout=timeout)

    def fetch(self, path: str, query: Query | None = None) -> Any:
        """A value by GET."""
        import json

        return json.loads(self.call("GET", path, query).read())

    def change(self, method: str, path: str, body: object = None, query: Query | None = None, *, key: str = "") -> bytes:
        """The answer to a request that changes something, and does so once: when the answer is lost, it is asked for again.

        Only for what carries a key to the end, or changes nothing the second time.
        """
        from fairway.sdk import retry

        asked = {**(query or {}), retry.KEY: key or retry.make_key()}
        return retry.persist(lambda: self.call(method, path, asked, body).read(), self.daemon, method, path, self.namespace)

    def send(self, method: str, path: str, body: object = None, query: Query | None = None, *, key: str = "") -> Any:
        """A value by a request that changes something, as `change`; None when the answer is empty."""
        import json

        data = self.change(method, path, body, query, key=key)
        return json.loads(data) if data else None

    def send_raw(self, path: str, data: bytes, query: Query | None = None) -> bytes:
        """Bytes as they are."""
        return self.daemon.request(
            "POST", path, {"namespace": self.namespace, **(query or {})}, data, kind="application/octet-stream"
        ).read()

    def show(self, path: str, query: Query | None = None) -> None:
        """Print what the daemon renders in the format asked for."""
        write(self.call("GET", path, {**(query or {}), **self.look()}).read())

    def look(self) -> dict[str, str | int | bool]:
        """How the daemon should render."""
        return {"output": self.output, "width": terminal_width(), "colour": has_colour(1)}


_quiet = False


def be_quiet() -> None:
    """From here on nothing is said. Errors are printed, not said."""
    global _quiet
    _quiet = True


def say(text: str) -> None:
    """Words for people, apart from data."""
    if _quiet:
        return
    sys.stdout.flush()
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def write(data: bytes) -> None:
    """Data, byte for byte, at once."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_error(data: bytes) -> None:
    """What a program wrote to its standard error, byte for byte, at once."""
    sys.stderr.flush()
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()


def show_line(text: str) -> None:
    """A line of data."""
    write(f"{text}\n".encode("utf-8", "surrogateescape"))


def write_json(value: object) -> None:
    """Data as JSON for people and programs."""
    import json

    write((json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape"))


def is_terminal(descriptor: int) -> bool:
    """Whether a person is at that end."""
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def has_colour(descriptor: int) -> bool:
    """Whether colours are wanted there: a terminal, and no variable forbids it."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return is_terminal(descriptor) or bool(os.environ.get("FORCE_COLOR"))


def terminal_height() -> int:
    """Lines of the terminal; 0 when there is none."""
    try:
        return os.get_terminal_size(1).lines
    except OSError:
        return 0


def terminal_width() -> int:
    """Columns of the terminal; 0 when there is none, which means no limit."""
    if not is_terminal(1):
        return 0
    given = os.environ.get("COLUMNS", "")
    try:
        return int(given) if given.isdecimal() else os.get_terminal_size(1).columns
    except OSError:
        return 0
