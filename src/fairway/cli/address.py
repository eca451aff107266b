"""Addresses: how verbs are told what they are about. `mnist`, `job/mnist-7`, `service/mnist`, `model/mnist@3`, `data/mnist`."""

from __future__ import annotations

from fairway.cli.grammar import suggest
from fairway.errors import UsageError
from fairway.sdk.wire import quote

JOB, QUEUE, SERVICE, MODEL, DATA = "job", "queue", "service", "model", "data"
_FOLDERS = {JOB: "jobs", QUEUE: "queues", SERVICE: "services", MODEL: "models", DATA: "datasets"}
"""Every kind, and where the daemon has it."""
_SPELLINGS = {
    **{kind: kind for kind in _FOLDERS},
    **{folder: kind for kind, folder in _FOLDERS.items()},
    **{"trainingjob": JOB, "jobqueue": QUEUE, "svc": SERVICE, "modelservice": SERVICE, "dataset": DATA},
}
"""What may stand before the slash."""
_ALL_OF = {**{folder: kind for kind, folder in _FOLDERS.items()}, "service": SERVICE, "svc": SERVICE, "data": DATA}
"""What means all of a kind, without a slash."""


def split(address: str, kinds: tuple[str, ...] = (JOB,)) -> tuple[str, str]:
    """Kind and name. A name alone is of the first of the kinds that the verb is for; one of any other is refused."""
    word, mark, name = address.partition("/")
    kind = _SPELLINGS.get(word.lower(), "") if mark else kinds[0]
    name = name if mark else word
    allowed = " or ".join(f"{each}/NAME" for each in kinds)
    if not kind:
        message = f"{address}: no kind is called {word!r}{suggest(word.lower(), sorted(_SPELLINGS))}"
        raise UsageError(message, fix=f"write {allowed}, or NAME alone for a {kinds[0]}")
    if kind not in kinds:
        message = f"{address} names a {_word(kind)}, and this verb is not for those"
        raise UsageError(message, fix=f"write {allowed}")
    if not name or "/" in name:
        message = f"{address!r} names no {_word(kind)}"
        raise UsageError(message, fix=f"`fairway list {_FOLDERS[kind]}` shows their names")
    return kind, name


def path_of(address: str, tail: str = "", kinds: tuple[str, ...] = (JOB, SERVICE)) -> str:
    """Where the daemon has what an address names."""
    kind, name = split(address, kinds)
    return f"/v1/{_FOLDERS[kind]}/{quote(name)}{tail}"


def path_of_all(word: str) -> str:
    """Where the daemon lists all of a kind (`services`); empty when the word means no kind."""
    kind = _ALL_OF.get(word.lower(), "")
    return f"/v1/{_FOLDERS[kind]}" if kind else ""


def job_path(address: str, tail: str = "") -> str:
    """The path of a job: `mnist-7`, `mnist` or `job/mnist-7`."""
    return path_of(address, tail, (JOB,))


def job_name(address: str) -> str:
    """The name in an address of a job."""
    return split(address, (JOB,))[1]


def queue_path(address: str) -> str:
    """The path of a queue: `research` or `queue/research`."""
    return path_of(address, kinds=(QUEUE,))


def service_path(address: str, tail: str = "") -> str:
    """The path of a service: `mnist` or `service/mnist`."""
    return path_of(address, tail, (SERVICE,))


def _word(kind: str) -> str:
    return "dataset" if kind == DATA else kind
