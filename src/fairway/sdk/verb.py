"""One method for two clients: a generator that says what to ask, and a descriptor that lets a client ask it.

A verb is a generator. It yields a `Call`, gets the answer's bytes, and returns a value; it does no I/O, so
the blocking and the asyncio client run the very same code:

    class Verbs:
        @verb
        def get(self, name: str) -> Steps[JobView]:
            return decode((yield Call("GET", job_path(name))), JobView)

    Client().get("mnist")               # -> JobView
    await AsyncClient().get("mnist")    # -> JobView
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from dataclasses import dataclass, field
from inspect import Signature
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from fairway.sdk import wire
from fairway.sdk.checking import Checked, signature_of

P = ParamSpec("P")
R = TypeVar("R")
_Client = TypeVar("_Client")


@dataclass(frozen=True, slots=True)
class Call:
    """One request, not yet sent."""

    method: str
    path: str
    query: dict[str, str | int | float | bool | None] = field(default_factory=dict)
    body: bytes = b""
    kind: str = wire.JSON
    until: Callable[[bytes], bool] | None = None
    """For an answer that comes line by line: the line at which it has been heard enough. The answer is then that line."""
    patience: float | None = None
    """Seconds to wait for that line; `TimeoutError` then."""
    once: bool = False
    """Whether it is done once however often it is sent, because it carries a key or leaves things as they are the second time:
    it is sent again when its answer is lost."""

    def encode(self) -> bytes:
        """The bytes of the request."""
        return wire.encode_request(self.method, self.path, self.query, self.body, self.kind)


Steps = Generator[Call, bytes, R]
"""What a verb is: calls out, answers in, a value at the end."""


@dataclass(frozen=True, slots=True)
class Done(Generic[R]):
    """The end of a verb."""

    value: R


def advance(steps: Steps[R], answer: bytes | Exception | None) -> Call | Done[R]:
    """What a verb asks next, told the answer to what it asked last, or what came instead of one; None begins it."""
    try:
        if isinstance(answer, Exception):
            return steps.throw(answer)
        return next(steps) if answer is None else steps.send(answer)
    except StopIteration as end:
        return Done(end.value)


@dataclass(frozen=True, slots=True)
class Lines(Generic[R]):
    """A request whose answer comes line by line, and what each line means; None for a line that means nothing."""

    call: Call
    read: Callable[[bytes], R | None]


class Blocking(Protocol):
    """A client that waits."""

    def perform(self, steps: Steps[R]) -> R:
        """Run a verb to its end."""
        ...

    def listen(self, lines: Lines[R]) -> Iterator[R]:
        """What comes, as it comes."""
        ...


class Awaiting(Protocol):
    """A client that awaits."""

    def perform(self, steps: Steps[R]) -> Coroutine[Any, Any, R]:
        """Run a verb to its end."""
        ...

    def listen(self, lines: Lines[R]) -> AsyncIterator[R]:
        """What comes, as it comes."""
        ...


class verb(Generic[P, R]):  # noqa: N801 - it is used as a decorator
    """Makes a generator method callable on either kind of client. Its arguments are checked before anything is asked."""

    def __init__(self, function: Callable[Concatenate[Any, P], Steps[R]]) -> None:
        signature = signature_of(function, "Steps")
        checked = Checked(function, signature)

        def method(self: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
            checked.check(args, kwargs)
            return self.perform(function(self, *args, **kwargs))

        self._method = _named(method, function, signature)

    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, R]: ...
    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        """The method, bound to a client; of the class, the function."""
        return self._method if client is None else MethodType(self._method, client)


class listening(Generic[P, R]):  # noqa: N801 - it is used as a decorator
    """The same for a method that gives what comes, as it comes."""

    def __init__(self, function: Callable[Concatenate[Any, P], Lines[R]]) -> None:
        signature = signature_of(function, "Lines")
        signature = signature.replace(return_annotation=f"Iterator[{signature.return_annotation}]")
        checked = Checked(function, signature)

        def method(self: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
            checked.check(args, kwargs)
            return self.listen(function(self, *args, **kwargs))

        self._method = _named(method, function, signature)

    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, Iterator[R]]: ...
    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, AsyncIterator[R]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        """The method, bound to a client; of the class, the function."""
        return self._method if client is None else MethodType(self._method, client)


def _named(method: Callable[..., Any], function: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """The method with the name, the words and the signature that callers see."""
    for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(method, attribute, getattr(function, attribute))
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method
