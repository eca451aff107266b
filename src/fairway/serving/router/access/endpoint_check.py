"""Checks what this machine lacks for the endpoint of a document, before anything changes."""

from __future__ import annotations

import errno
import socket

from fairway.errors import UnavailableError
from fairway.plan.service.access import access_of
from fairway.serving.router.access.self_signed import find_openssl
from fairway.serving.router.access.tls_file import check_files
from fairway.state.service import ServiceState


def endpoint_lacks(service: ServiceState, now: float) -> list[str]:
    """Return what would keep the port from opening, each with its fix."""
    endpoint = service.spec.endpoint
    problems: list[str] = []
    if not _is_ours(endpoint.bind):
        problems.append(f"bind {endpoint.bind} is not an address of this machine: use 0.0.0.0, or one that `ip address` lists")
    if endpoint.tls.secret is not None:
        problems.append(
            f"tls.secret {endpoint.tls.secret} works only in clusters: give a certificate and its key, or self-signed"
        )
        return problems
    access = access_of(service)
    tls = access.tls if access is not None else None
    if tls is None:
        return problems
    if not tls.self_signed:
        return problems + check_files(tls, now)
    try:
        find_openssl()
    except UnavailableError as problem:
        problems.append(f"{problem.message}: {problem.fix}")
    return problems


def _is_ours(address: str) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as trial:
        try:
            trial.bind((address, 0))
        except OSError as problem:
            return problem.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True
