"""Uploads from commands to a cluster: code of documents, and files of registrations."""

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
"""Size in bytes above which the upload of code is announced."""


def for_cluster(session: Session, body: dict[str, Any], *, folder: str, plan: bool) -> dict[str, Any]:
    """Return the body of a submit or an apply for a cluster: its documents no longer depend on this machine."""
    from fairway.sdk import sending

    return _ask(session, sending.for_cluster(body, folder=folder, namespace=session.namespace, plan=plan))


def with_code(session: Session, document: dict[str, Any], folder: str, packed: dict[str, str], *, plan: bool) -> dict[str, Any]:
    """Upload the code of a document, unless `plan`, and return the document. `packed` holds uploads so far, by folder."""
    from fairway.sdk import sending

    steps = sending.with_code(document, folder=folder, namespace=session.namespace, packed=packed, plan=plan)
    return _ask(session, steps)


def model_sent(session: Session, body: dict[str, Any]) -> dict[str, Any]:
    """Upload the files of a registration and return its body. Nothing is sent if it would be refused."""
    from fairway.sdk import uploading

    uploading.examine(body)
    return {**body, **_shown(session, lambda report: uploading.send_model(body, namespace=session.namespace, told=report))}


def dataset_sent(session: Session, body: dict[str, Any]) -> dict[str, Any]:
    """Upload the files of a dataset version and return its body."""
    from fairway.sdk import uploading

    return {**body, **_shown(session, lambda report: uploading.send_dataset(body, namespace=session.namespace, told=report))}


def _shown(session: Session, steps: Callable[[Told], Steps[dict[str, Any]]]) -> dict[str, Any]:
    """Run the steps and show a progress bar if they take a while."""
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
            answer = error  # The verb may handle the error.
    return step.value


def _answer(session: Session, call: Call) -> bytes:
    if call.path == "/v1/code" and len(call.body) > _LARGE:
        say(f"sending {len(call.body) / 1e6:.0f} MB of code ...")
    try:
        return session.daemon.request(call.method, call.path, call.query, call.body, kind=call.kind).read()
    except UnavailableError:
        if call.until is None:
            raise
        # The call only checks that the daemon answers: wait until it does.
        session.daemon.start()
        return b""
