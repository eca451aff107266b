"""Protocol with which one pod of a run starts a program in another: both sides prove that they have the run's key.

Neither side sends the key. Each sends a random number that is used only once, and answers the other's with a proof that requires
the key. From the two numbers each direction gets its own key, and every later frame is signed and counted, so that an attacker on
the network can neither change, repeat nor insert one. Nothing is encrypted: the ranks' own communication is not either. Standard
library only, Python 3.9 and newer.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
import threading

HELLO = b"fairway-remote-1"
NONCE = PROOF = 32
MOST = 1 << 20
"""Maximum size of a frame in bytes."""

START, INPUT, INPUT_END, SIGNAL, OUTPUT, ERRORS, EXIT = range(1, 8)
"""Kinds of frames: the first four are sent to the program, the others come from it."""

REACHED, LOST = "reached", "lost"
"""Folders of the attempt with one file per host: on which a program was started, or whose connection broke before the program's
end."""

_HEAD = struct.Struct(">IB")


class AuthenticationError(Exception):
    """Raised when the other side cannot authenticate itself, or violates the protocol."""


def key_of(token: str, attempt: int) -> bytes:
    """Return the key of one attempt of a run, derived from the run's token: each attempt has its own."""
    return hmac.new(token.encode(), f"remote:{attempt}".encode(), hashlib.sha256).digest()


class RemoteChannel:
    """An authenticated connection. One thread reads; several may write."""

    def __init__(self, connection: socket.socket, sends: bytes, takes: bytes) -> None:
        self._connection = connection
        self._sends = sends
        self._takes = takes
        self._sent = 0
        self._taken = 0
        self._lock = threading.Lock()

    def send(self, kind: int, data: bytes = b"") -> None:
        """Send one frame. Raises `OSError` if the other side is gone."""
        with self._lock:
            proof = _sign(self._sends, self._sent, kind, data)
            self._sent += 1
            self._connection.sendall(_HEAD.pack(len(data), kind) + data + proof)

    def receive(self) -> tuple[int, bytes] | None:
        """Return the next frame; None at the end. Raises `AuthenticationError` for a frame with a wrong signature."""
        head = _read(self._connection, _HEAD.size)
        if head is None:
            return None
        size, kind = _HEAD.unpack(head)
        if size > MOST:
            raise AuthenticationError(f"a frame of {size} bytes; the limit is {MOST}")
        body = _read(self._connection, size + PROOF)
        if body is None:
            return None
        data = body[:size]
        if not hmac.compare_digest(body[size:], _sign(self._takes, self._taken, kind, data)):
            raise AuthenticationError("a frame with a wrong signature")
        self._taken += 1
        return kind, data

    def finish(self) -> None:
        """Shut down sending; frames of the other side are still received."""
        self._connection.shutdown(socket.SHUT_WR)


def accept(connection: socket.socket, key: bytes) -> RemoteChannel:
    """Authenticate as the listener. Raises `AuthenticationError` if the caller does not have the run's key."""
    own_nonce = os.urandom(NONCE)
    connection.sendall(HELLO + own_nonce)
    answer = _read(connection, NONCE + PROOF)
    if answer is None:
        raise AuthenticationError("the caller closed the connection")
    peer_nonce, proof = answer[:NONCE], answer[NONCE:]
    if not hmac.compare_digest(proof, _prove(key, b"caller", own_nonce, peer_nonce)):
        raise AuthenticationError("the caller does not have this run's key")
    connection.sendall(_prove(key, b"listener", own_nonce, peer_nonce))
    return _channel(connection, key, own_nonce, peer_nonce, listens=True)


def call(connection: socket.socket, key: bytes) -> RemoteChannel:
    """Authenticate as the caller. Raises `AuthenticationError` if the listener does not have the run's key."""
    hello = _read(connection, len(HELLO) + NONCE)
    if hello is None:
        raise AuthenticationError("the listener closed the connection")
    if not hello.startswith(HELLO):
        raise AuthenticationError("the listener uses another protocol")
    peer_nonce, own_nonce = hello[len(HELLO) :], os.urandom(NONCE)
    connection.sendall(own_nonce + _prove(key, b"caller", peer_nonce, own_nonce))
    proof = _read(connection, PROOF)
    if proof is None or not hmac.compare_digest(proof, _prove(key, b"listener", peer_nonce, own_nonce)):
        raise AuthenticationError(
            "the listener does not have this run's key; does it belong to another run, or to an earlier attempt?"
        )
    return _channel(connection, key, peer_nonce, own_nonce, listens=False)


def note(attempt: str, what: str, host: str) -> None:
    """Record in the attempt's folder what happened to the connection to a host: `REACHED` or `LOST`."""
    if attempt:
        os.makedirs(os.path.join(attempt, what), exist_ok=True)
        with open(os.path.join(attempt, what, host), "w", encoding="utf-8"):
            pass


def noted(attempt: str, what: str) -> set[str]:
    """Return the hosts for which it was recorded."""
    try:
        return set(os.listdir(os.path.join(attempt, what)))
    except FileNotFoundError:
        return set()


def keep_alive(connection: socket.socket) -> None:
    """Enable TCP keep-alive, to detect within a minute that the other machine is gone, even on an idle connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _channel(connection: socket.socket, key: bytes, listener: bytes, caller: bytes, listens: bool) -> RemoteChannel:
    to_caller, to_listener = (_prove(key, way, listener, caller) for way in (b"to caller", b"to listener"))
    return RemoteChannel(connection, *((to_caller, to_listener) if listens else (to_listener, to_caller)))


def _prove(key: bytes, what: bytes, listener: bytes, caller: bytes) -> bytes:
    return hmac.new(key, HELLO + what + listener + caller, hashlib.sha256).digest()


def _sign(key: bytes, number: int, kind: int, data: bytes) -> bytes:
    return hmac.new(key, struct.pack(">QB", number, kind) + data, hashlib.sha256).digest()


def _read(connection: socket.socket, size: int) -> bytes | None:
    """Read exactly `size` bytes; None if the other side ended before."""
    received = bytearray()
    while len(received) < size:
        try:
            part = connection.recv(size - len(received))
        except ConnectionError:
            return None
        if not part:
            return None
        received += part
    return bytes(received)
