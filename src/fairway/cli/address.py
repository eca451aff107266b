"""Addresses, which name the object of a verb: `mnist`, `job/mnist-7`, `service/mnist`, `model/mnist@3`, `data/mnist`."""

from __future__ import annotations

from fairway.cli.argument_parser import suggest
from fairway.errors import UsageError
from fairway.sdk.transport.http import quote

JOB, QUEUE, SERVICE, MODEL, DATA = "job", "queue", "service", "model", "data"
_FOLDERS = {JOB: "jobs", QUEUE: "queues", SERVICE: "services", MODEL: "models", DATA: "datasets"}
"""The daemon's collection for each kind."""
_SPELLINGS = {
    **{kind: kind for kind in _FOLDERS},
    **{folder: kind for kind, folder in _FOLDERS.items()},
    **{"trainingjob": JOB, "jobqueue": QUEUE, "svc": SERVICE, "modelservice": SERVICE, "dataset": DATA},
}
"""The spellings of a kind that are accepted before the slash."""
_ALL_OF = {**{folder: kind for kind, folder in _FOLDERS.items()}, "service": SERVICE, "svc": SERVICE, "data": DATA}
"""Words without a slash that mean all objects of a kind."""


def split(address: str, kinds: tuple[str, ...] = (JOB,)) -> tuple[str, str]:
    """Split an address into kind and name. A bare name gets the first of `kinds`; a kind that is not in `kinds` is refused."""
    word, mark, name = address.partition("/")
    kind = _SPELLINGS.get(word.lower(), "") if mark else kinds[0]
    name = name if mark else word
    allowed = " or ".join(f"{allowed_kind}/NAME" for allowed_kind in kinds)
    if not kind:
        message = f"{address}: no kind is called {word!r}{suggest(word.lower(), sorted(_SPELLINGS))}"
        raise UsageError(message, fix=f"write {allowed}, or NAME alone for a {kinds[0]}")
    if kind not in kinds:
        message = f"{address} names a {_word(kind)}, which this verb does not accept"
        raise UsageError(message, fix=f"write {allowed}")
    if not name or "/" in name:
        message = f"{address!r} names no {_word(kind)}"
        raise UsageError(message, fix=f"`fairway list {_FOLDERS[kind]}` lists the names")
    return kind, name


def path_of(address: str, tail: str = "", kinds: tuple[str, ...] = (JOB, SERVICE)) -> str:
    """Return the daemon's path for the object that an address names."""
    kind, name = split(address, kinds)
    return f"/v1/{_FOLDERS[kind]}/{quote(name)}{tail}"


def path_of_all(word: str) -> str:
    """Return the daemon's path that lists all objects of a kind (`services`); empty if the word means no kind."""
    kind = _ALL_OF.get(word.lower(), "")
    return f"/v1/{_FOLDERS[kind]}" if kind else ""


def job_path(address: str, tail: str = "") -> str:
    """Return the path of a job: `mnist-7`, `mnist` or `job/mnist-7`."""
    return path_of(address, tail, (JOB,))


def job_name(address: str) -> str:
    """Return the name in the address of a job."""
    return split(address, (JOB,))[1]


def queue_path(address: str) -> str:
    """Return the path of a queue: `research` or `queue/research`."""
    return path_of(address, kinds=(QUEUE,))


def service_path(address: str, tail: str = "") -> str:
    """Return the path of a service: `mnist` or `service/mnist`."""
    return path_of(address, tail, (SERVICE,))


def _word(kind: str) -> str:
    return "dataset" if kind == DATA else kind
