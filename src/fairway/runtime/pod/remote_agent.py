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

from fairway.runtime import task_contract
from fairway.runtime.pod import remote_channel, termination_message
from fairway.runtime.pod.remote_channel import RemoteChannel

PATIENCE = 900.0
"""Seconds to wait for the other pod to start: its node may still be pulling the image."""
PAUSE = 0.2
"""Seconds between two connection attempts."""
FAILED = 255
"""Exit code on failure, as that of ssh."""
CHUNK = 1 << 16
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class PodUnreachableError(Exception):
    """Raised when the other pod cannot be reached."""


class PodLostError(Exception):
    """Raised when the other pod is gone, and with it the program."""

    def __init__(self, host: str) -> None:
        # This wording marks another pod as the cause; `failure.peer` recognises it.
        super().__init__(f"the connection to {host} was lost: connection closed by peer")
        self.host = host


def place_of(host: str, known: dict[str, int]) -> tuple[str, int]:
    """Return the address of a host, given by its full name or its first part. Raises `PodUnreachableError` if it is not known."""
    if host in known:
        return host, known[host]
    matching = [name for name in known if name.split(".")[0] == host.split(".")[0]]
    if len(matching) != 1:
        raise PodUnreachableError(f"{host} is not a pod of this run; its pods are {', '.join(sorted(known)) or 'none'}")
    return matching[0], known[matching[0]]


def connect(address: tuple[str, int], key: bytes, patience: float = PATIENCE) -> RemoteChannel:
    """Connect to a listener; retry while its pod is not up yet. Raises `PodUnreachableError`."""
    until = time.monotonic() + patience
    while True:
        try:
            connection = socket.create_connection(address, timeout=10.0)
            break
        except OSError as error:
            if time.monotonic() >= until:
                raise PodUnreachableError(
                    f"no process listens on {address[0]}:{address[1]} after {patience:g} s: {error}"
                ) from error
            time.sleep(PAUSE)
    remote_channel.keep_alive(connection)
    try:
        channel = remote_channel.call(connection, key)
    except (remote_channel.AuthenticationError, OSError) as error:
        connection.close()
        raise PodUnreachableError(f"{address[0]}:{address[1]}: {error}") from error
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return channel


def run(channel: RemoteChannel, command: str, host: str) -> int:
    """Run the command in the other pod; return its exit code."""
    channel.send(remote_channel.START, json.dumps({"command": command}).encode())
    for number in PASSED_ON:
        signal.signal(number, lambda received, _frame: _tell(channel, received))
    threading.Thread(target=_feed, args=(channel,), daemon=True).start()
    while True:
        frame = channel.receive()
        if frame is None:
            raise PodLostError(host)
        kind, data = frame
        if kind == remote_channel.EXIT:
            end = json.loads(data)
            return termination_message.exit_code(end["code"], end["signal"])
        _print(sys.stderr.fileno() if kind == remote_channel.ERRORS else sys.stdout.fileno(), data)


def _tell(channel: RemoteChannel, number: int) -> None:
    # In its own thread, because the interrupted one may hold the channel's lock.
    threading.Thread(target=_try_to_send, args=(channel, remote_channel.SIGNAL, bytes([number])), daemon=True).start()


def _feed(channel: RemoteChannel) -> None:
    """Forward the standard input."""
    while True:
        try:
            data = os.read(0, CHUNK)
        except OSError:
            data = b""
        if not _try_to_send(channel, remote_channel.INPUT if data else remote_channel.INPUT_END, data) or not data:
            return


def _try_to_send(channel: RemoteChannel, kind: int, data: bytes) -> bool:
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
        address = place_of(host, json.loads(environment.get(task_contract.REMOTE_HOSTS, "{}")))
        channel = connect(address, bytes.fromhex(environment.get(task_contract.REMOTE_KEY, "")))
        remote_channel.note(environment.get(task_contract.ATTEMPT_DIR, ""), remote_channel.REACHED, address[0])
        return run(channel, command, address[0])
    except PodLostError as error:
        # Open MPI 5 reports this too, but stops its job and exits with 0.
        remote_channel.note(environment.get(task_contract.ATTEMPT_DIR, ""), remote_channel.LOST, error.host)
        sys.stderr.write(f"fairway: {error}\n")
        return FAILED
    except (PodUnreachableError, remote_channel.AuthenticationError, OSError, ValueError) as error:
        sys.stderr.write(f"fairway: {error}\n")
        return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], dict(os.environ)))
