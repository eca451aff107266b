"""A pod to which the operator connects. Standard library only, Python 3.9 and newer."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass


@dataclass(frozen=True)
class PodPeer:
    """The address of a pod, and the name that its certificate must have."""

    address: str
    """`HOST:PORT`."""
    name: str = ""
    """Name in the certificate; empty: the pod was created by a version without TLS."""


async def dial(
    peer: PodPeer, trusted: ssl.SSLContext | None, limit: int = 1 << 16
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the pod; if it has a name, verify its certificate. Raises `OSError` or `ValueError`.

    A pod with a name is never contacted without TLS, whatever it answers.
    """
    host, _, text = peer.address.rpartition(":")
    port = int(text)
    if not 0 < port < 1 << 16:
        raise ValueError(f"{text} is not a port")
    if not peer.name:
        return await asyncio.open_connection(host.strip("[]"), port, limit=limit)
    if trusted is None:
        raise OSError(f"{peer.address} uses TLS, but there is no authority to verify it with")
    return await asyncio.open_connection(host.strip("[]"), port, limit=limit, ssl=trusted, server_hostname=peer.name)
