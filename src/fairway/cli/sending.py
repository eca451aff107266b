"""What goes to a cluster with documents, sent by a command."""

from __future__ import annotations

from fairway.cli.session import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fairway.cli.session import Session
    from fairway.sdk.verb import Steps

_LARGE = 1 << 22
"""Bytes that take long enough to say so."""


def for_cluster(session: Session, body: dict[str, Any], *, folder: str, plan: bool) -> dict[str, Any]:
    """The body of a submit or an apply as a cluster takes it: documents that need nothing of this machine any more."""
    from fairway.sdk import sending

    return _ask(session, sending.for_cluster(body, folder=folder, namespace=session.namespace, plan=plan))


def with_code(session: Session, document: dict[str, Any], folder: str, packed: dict[str, str], *, plan: bool) -> dict[str, Any]:
    """One document with its code sent, unless it is only planned; `packed` knows what was sent already, by folder."""
    from fairway.sdk import sending

    steps = sending.with_code(document, folder=folder, namespace=session.namespace, packed=packed, plan=plan)
    return _ask(session, steps)


def _ask(session: Session, steps: Steps[dict[str, Any]]) -> dict[str, Any]:
    try:
        call = next(steps)
        while True:
            if len(call.body) > _LARGE:
                say(f"sending {len(call.body) / 1e6:.0f} MB of code ...")
            reply = session.daemon.request(call.method, call.path, call.query, call.body, kind=call.kind)
            call = steps.send(reply.read())
    except StopIteration as end:
        found: dict[str, Any] = end.value
        return found
