"""`remote_agent.py HOST COMMAND...`: run a command in another pod of the run, as `ssh HOST COMMAND` would.

A launcher (`mpirun`) is configured to use this instead of ssh. Input, output, signals and the exit code are forwarded. Standard
library only, Python 3.9 and newer.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time

from fairway.runtime import contract
from fairway.runtime.pod import ending, remote
from fairway.runtime.pod.remote import Channel

PATIENCE = 900.0
"""Seconds to wait for the other pod to start: its node may still be pulling the image."""
PAUSE = 0.2
"""Seconds between two connection attempts."""
FAILED = 255
"""Exit code on failure, as that of ssh."""
CHUNK = 1 << 16
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class UnreachableError(Exception):
    """Raised when the other pod cannot be reached."""


class LostError(Exception):
    """Raised when the other pod is gone, and with it the program."""

    def __init__(self, host: str) -> None:
        # This wording marks another pod as the cause; `failure.peer` recognises it.
        super().__init__(f"the connection to {host} was lost: connection closed by peer")
        self.host = host


def place_of(host: str, known: dict[str, int]) -> tuple[str, int]:
    """Return the address of a host, given by its full name or its first part. Raises `UnreachableError` if it is not known."""
    if host in known:
        return host, known[host]
    matching = [name for name in known if name.split(".")[0] == host.split(".")[0]]
    if len(matching) != 1:
        raise UnreachableError(f"{host} is not a pod of this run; its pods are {', '.join(sorted(known)) or 'none'}")
    return matching[0], known[matching[0]]


def connect(address: tuple[str, int], key: bytes, patience: float = PATIENCE) -> Channel:
    """Connect to a listener; retry while its pod is not up yet. Raises `UnreachableError`."""
    until = time.monotonic() + patience
    while True:
        try:
            connection = socket.create_connection(address, timeout=10.0)
            break
        except OSError as error:
            if time.monotonic() >= until:
                raise UnreachableError(
                    f"no process listens on {address[0]}:{address[1]} after {patience:g} s: {error}"
                ) from error
            time.sleep(PAUSE)
    remote.keep_alive(connection)
    try:
        channel = remote.call(connection, key)
    except (remote.RefusedError, OSError) as error:
        connection.close()
        raise UnreachableError(f"{address[0]}:{address[1]}: {error}") from error
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return channel


def run(channel: Channel, command: str, host: str) -> int:
    """Run the command in the other pod; return its exit code."""
    channel.send(remote.START, json.dumps({"command": command}).encode())
    for number in PASSED_ON:
        signal.signal(number, lambda received, _frame: _tell(channel, received))
    threading.Thread(target=_feed, args=(channel,), daemon=True).start()
    while True:
        frame = channel.receive()
        if frame is None:
            raise LostError(host)
        kind, data = frame
        if kind == remote.EXIT:
            end = json.loads(data)
            return ending.exit_code(end["code"], end["signal"])
        _print(sys.stderr.fileno() if kind == remote.ERRORS else sys.stdout.fileno(), data)


def _tell(channel: Channel, number: int) -> None:
    # In its own thread, because the interrupted one may hold the channel's lock.
    threading.Thread(target=_try_to_send, args=(channel, remote.SIGNAL, bytes([number])), daemon=True).start()


def _feed(channel: Channel) -> None:
    """Forward the standard input."""
    while True:
        try:
            data = os.read(0, CHUNK)
        except OSError:
            data = b""
        if not _try_to_send(channel, remote.INPUT if data else remote.INPUT_END, data) or not data:
            return


def _try_to_send(channel: Channel, kind: int, data: bytes) -> bool:
    try:
        channel.send(kind, data)
    except OSError:
        return False
    return True


def _print(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def main(arguments: list[str], environment: dict[str, str]) -> int:
    """Run the command, and print the reason if that is not possible."""
    if len(arguments) < 2:
        sys.stderr.write("usage: remote_agent.py HOST COMMAND...\n")
        return FAILED
    host, command = arguments[0], " ".join(arguments[1:])
    try:
        address = place_of(host, json.loads(environment.get(contract.REMOTE_HOSTS, "{}")))
        channel = connect(address, bytes.fromhex(environment.get(contract.REMOTE_KEY, "")))
        remote.note(environment.get(contract.ATTEMPT_DIR, ""), remote.REACHED, address[0])
        return run(channel, command, address[0])
    except LostError as error:
        # Open MPI 5 reports this too, but stops its job and exits with 0.
        remote.note(environment.get(contract.ATTEMPT_DIR, ""), remote.LOST, error.host)
        sys.stderr.write(f"fairway: {error}\n")
        return FAILED
    except (UnreachableError, remote.RefusedError, OSError, ValueError) as error:
        sys.stderr.write(f"fairway: {error}\n")
        return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], dict(os.environ)))
