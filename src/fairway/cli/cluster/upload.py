"""Uploads from commands to a cluster: code of documents, and files of registrations."""

from __future__ import annotations

from fairway.cli.session import is_terminal, say
from fairway.errors import FairwayError, UnavailableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fairway.cli.session import CommandSession
    from fairway.sdk.method.call import ApiCall, Steps
    from fairway.sdk.submission.file_upload import Told

_LARGE = 1 << 22
"""Size in bytes above which the upload of code is announced."""


def for_cluster(session: CommandSession, body: dict[str, Any], *, folder: str, plan: bool) -> dict[str, Any]:
    """Return the body of a submit or an apply for a cluster: its documents no longer depend on this machine."""
    from fairway.sdk.submission import code_upload

    return _ask(session, code_upload.for_cluster(body, folder=folder, namespace=session.namespace, plan=plan))


def with_code(
    session: CommandSession, document: dict[str, Any], folder: str, packed: dict[str, str], *, plan: bool
) -> dict[str, Any]:
    """Upload the code of a document, unless `plan`, and return the document. `packed` holds uploads so far, by folder."""
    from fairway.sdk.submission import code_upload

    steps = code_upload.with_code(document, folder=folder, namespace=session.namespace, packed=packed, plan=plan)
    return _ask(session, steps)


def model_sent(session: CommandSession, body: dict[str, Any]) -> dict[str, Any]:
    """Upload the files of a registration and return its body. Nothing is sent if it would be refused."""
    from fairway.sdk.submission import file_upload

    file_upload.examine(body)
    return {**body, **_shown(session, lambda report: file_upload.send_model(body, namespace=session.namespace, told=report))}


def dataset_sent(session: CommandSession, body: dict[str, Any]) -> dict[str, Any]:
    """Upload the files of a dataset version and return its body."""
    from fairway.sdk.submission import file_upload

    return {**body, **_shown(session, lambda report: file_upload.send_dataset(body, namespace=session.namespace, told=report))}


def _shown(session: CommandSession, steps: Callable[[Told], Steps[dict[str, Any]]]) -> dict[str, Any]:
    """Run the steps and show a progress bar if they take a while."""
    from fairway.cli.terminal.progress_bar import ProgressBar
    from fairway.units.quantity import show_bytes

    progress = ProgressBar(shown=is_terminal(2), amount=show_bytes)
    try:
        return _ask(session, steps(lambda done, total: progress("sending", done, total)))
    finally:
        progress.close()


def _ask(session: CommandSession, steps: Steps[dict[str, Any]]) -> dict[str, Any]:
    from fairway.sdk.method.call import FinishedCall, advance

    answer: bytes | Exception | None = None
    while not isinstance(step := advance(steps, answer), FinishedCall):
        try:
            answer = _answer(session, step)
        except FairwayError as error:
            answer = error  # The verb may handle the error.
    return step.value


def _answer(session: CommandSession, call: ApiCall) -> bytes:
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
