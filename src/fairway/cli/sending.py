"""What goes to a cluster with documents and registrations, sent by a command."""

from __future__ import annotations

from fairway.cli.session import is_terminal, say
from fairway.errors import FairwayError, UnavailableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fairway.cli.session import Session
    from fairway.sdk.uploading import Told
    from fairway.sdk.verb import Call, Steps

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


def model_sent(session: Session, body: dict[str, Any]) -> dict[str, Any]:
    """The body of a registration whose files were sent; nothing is when it would be refused."""
    from fairway.sdk import uploading

    uploading.examine(body)
    return {**body, **_shown(session, lambda told: uploading.send_model(body, namespace=session.namespace, told=told))}


def dataset_sent(session: Session, body: dict[str, Any]) -> dict[str, Any]:
    """The same for a version of a dataset."""
    from fairway.sdk import uploading

    return {**body, **_shown(session, lambda told: uploading.send_dataset(body, namespace=session.namespace, told=told))}


def _shown(session: Session, steps: Callable[[Told], Steps[dict[str, Any]]]) -> dict[str, Any]:
    """Send, and show how far it is when that takes a while."""
    from fairway.cli.progress import Progress
    from fairway.units.quantity import show_bytes

    progress = Progress(shown=is_terminal(2), amount=show_bytes)
    try:
        return _ask(session, steps(lambda done, total: progress("sending", done, total)))
    finally:
        progress.close()


def _ask(session: Session, steps: Steps[dict[str, Any]]) -> dict[str, Any]:
    from fairway.sdk.verb import Done, advance

    answer: bytes | Exception | None = None
    while not isinstance(step := advance(steps, answer), Done):
        try:
            answer = _answer(session, step)
        except FairwayError as error:
            answer = error  # The verb may know what to do.
    return step.value


def _answer(session: Session, call: Call) -> bytes:
    if call.path == "/v1/code" and len(call.body) > _LARGE:
        say(f"sending {len(call.body) / 1e6:.0f} MB of code ...")
    try:
        return session.daemon.request(call.method, call.path, call.query, call.body, kind=call.kind).read()
    except UnavailableError:
        if call.until is None:
            raise
        # It is asked whether anybody is there: wait until somebody is.
        session.daemon.start()
        return b""
