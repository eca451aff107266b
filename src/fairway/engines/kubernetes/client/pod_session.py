"""Access to a pod: its logs, and programs run in its containers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

import aiohttp
import msgspec

from fairway.engines.kubernetes.client import api_path, errors
from fairway.engines.kubernetes.client.api_resource import PODS
from fairway.engines.kubernetes.client.connection import ApiConnection

STDIN, STDOUT, STDERR, RESULT, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
"""The channels of the protocol: the first byte of every message."""
PROTOCOL = "v5.channel.k8s.io"
"""The first version in which standard input can be closed."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which part of a container's log to read."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    """Read the log of the container before its last restart."""
    tail: int | None = None
    since_seconds: int | None = None
    timestamps: bool = False


async def logs(connection: ApiConnection, name: str, namespace: str, wish: LogOptions = LogOptions()) -> AsyncIterator[bytes]:
    """Yield the log as it arrives; with `follow` until the container ends."""
    query = api_path.query(
        container=wish.container,
        follow=wish.follow,
        previous=wish.previous,
        tailLines=wish.tail,
        sinceSeconds=wish.since_seconds,
        timestamps=wish.timestamps,
    )
    path = PODS.one(name, namespace, "log") + query
    async with connection.stream(f"read the log of Pod {namespace}/{name}", path) as body:
        while chunk := await body.readany():
            yield chunk


class ExecSession:
    """A program that runs in a container. Iterate over its output; afterwards `exit_code` is available."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, asked: str) -> None:
        self._socket = socket
        self._asked = asked
        self._result: errors.ApiStatus | None = None

    async def write(self, data: bytes) -> None:
        """Write to its standard input."""
        await self._socket.send_bytes(bytes((STDIN,)) + data)

    async def close_input(self) -> None:
        """Close its standard input."""
        await self._socket.send_bytes(bytes((CLOSE, STDIN)))

    async def resize(self, columns: int, rows: int) -> None:
        """Set the size of its terminal."""
        await self._socket.send_bytes(bytes((RESIZE,)) + msgspec.json.encode({"Width": columns, "Height": rows}))

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield (`STDOUT` or `STDERR`, bytes) as they arrive, until the program has ended."""
        async for message in self._socket:
            if message.type is aiohttp.WSMsgType.ERROR:
                return  # `exit_code` raises the error of the lost connection
            data = message.data.encode() if isinstance(message.data, str) else message.data
            if not data:
                continue
            if data[0] == RESULT:
                self._result = msgspec.json.decode(data[1:], type=errors.ApiStatus)
            elif len(data) > 1:
                yield data[0], data[1:]

    @property
    def exit_code(self) -> int:
        """The exit code; raises an error when it is unknown."""
        return exit_code(self._asked, self._result)


def exit_code(asked: str, result: errors.ApiStatus | None) -> int:
    """Return the exit code from the last message of the protocol."""
    if result is None:
        message = f"cannot {asked}: the connection was lost before the program ended"
        raise errors.Unavailable(message, fix="check whether it is still running, then run it again", asked=asked)
    if result.status == "Success":
        return 0
    causes = result.details.causes if result.details else ()
    codes = [cause.message for cause in causes if cause.reason == "ExitCode"]
    if result.reason == "NonZeroExitCode" and codes and codes[0].isdigit():
        return int(codes[0])
    raise errors.from_status(asked, result)


@asynccontextmanager
async def execute(
    connection: ApiConnection,
    name: str,
    namespace: str,
    command: Sequence[str],
    *,
    container: str = "",
    stdin: bool = False,
    tty: bool = False,
) -> AsyncIterator[ExecSession]:
    """Run a program in a container of the pod."""
    parameters = [("command", part) for part in command]
    parameters += [("container", container)] if container else []
    # A terminal has a single stream for output and errors.
    switches = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
    parameters += [(switch, "true") for switch, on in switches.items() if on]
    asked = f"run {command[0]!r} in Pod {namespace}/{name}"
    path = f"{PODS.one(name, namespace, 'exec')}?{urlencode(parameters)}"
    async with connection.socket(asked, path, PROTOCOL) as socket:
        yield ExecSession(socket, asked)
