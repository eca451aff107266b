"""Methods shared by both clients: a generator that yields requests, and a descriptor that lets a client send them.

A verb is a generator. It yields a `ApiCall`, receives the bytes of the reply, and returns a value. It does no I/O, so
the blocking and the asyncio client run the same code:

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

from fairway.sdk.method.argument import ArgumentCheck, signature_of
from fairway.sdk.transport import http

P = ParamSpec("P")
R = TypeVar("R")
_Client = TypeVar("_Client")


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request that has not been sent yet."""

    method: str
    path: str
    query: dict[str, str | int | float | bool | None] = field(default_factory=dict)
    body: bytes = b""
    kind: str = http.JSON
    until: Callable[[bytes], bool] | None = None
    """For a streamed reply: predicate for the line at which to stop reading. The result is then that line."""
    patience: float | None = None
    """Timeout for that line in seconds; `TimeoutError` is raised when it expires."""
    once: bool = False
    """Whether the request takes effect only once, because it carries an idempotency key or changes nothing the second time.
    Then it is retried when its reply is lost."""

    def encode(self) -> bytes:
        """Return the bytes of the request."""
        return http.encode_request(self.method, self.path, self.query, self.body, self.kind)


Steps = Generator[ApiCall, bytes, R]
"""The type of a verb: yields calls, receives replies, returns a value."""


@dataclass(frozen=True, slots=True)
class FinishedCall(Generic[R]):
    """The returned value of a finished verb."""

    value: R


def advance(steps: Steps[R], answer: bytes | Exception | None) -> ApiCall | FinishedCall[R]:
    """Send a verb the reply to its last call, or the exception, and return its next call or its end; None starts it."""
    try:
        if isinstance(answer, Exception):
            return steps.throw(answer)
        return next(steps) if answer is None else steps.send(answer)
    except StopIteration as end:
        return FinishedCall(end.value)


@dataclass(frozen=True, slots=True)
class StreamedCall(Generic[R]):
    """A request with a streamed reply, and a decoder of its lines, which returns None for a line to skip."""

    call: ApiCall
    read: Callable[[bytes], R | None]


class BlockingClient(Protocol):
    """A blocking client."""

    def perform(self, steps: Steps[R]) -> R:
        """Run a verb to the end and return its value."""
        ...

    def listen(self, lines: StreamedCall[R]) -> Iterator[R]:
        """Yield the decoded lines of the reply as they arrive."""
        ...


class AwaitingClient(Protocol):
    """An asyncio client."""

    def perform(self, steps: Steps[R]) -> Coroutine[Any, Any, R]:
        """Run a verb to the end and return its value."""
        ...

    def listen(self, lines: StreamedCall[R]) -> AsyncIterator[R]:
        """Yield the decoded lines of the reply as they arrive."""
        ...


class client_method(Generic[P, R]):  # noqa: N801 - it is used as a decorator
    """Decorator that makes a generator method callable on either kind of client. Arguments are checked before any request."""

    def __init__(self, function: Callable[Concatenate[Any, P], Steps[R]]) -> None:
        signature = signature_of(function, "Steps")
        checked = ArgumentCheck(function, signature)

        def method(self: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
            checked.check(args, kwargs)
            return self.perform(function(self, *args, **kwargs))

        self._method = _named(method, function, signature)

    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: BlockingClient, owner: type) -> Callable[P, R]: ...
    @overload
    def __get__(self, client: AwaitingClient, owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        """Return the method bound to a client; on the class, the function."""
        return self._method if client is None else MethodType(self._method, client)


class streaming_method(Generic[P, R]):  # noqa: N801 - it is used as a decorator
    """Decorator like `client_method`, for a method with a streamed reply."""

    def __init__(self, function: Callable[Concatenate[Any, P], StreamedCall[R]]) -> None:
        signature = signature_of(function, "Lines")
        signature = signature.replace(return_annotation=f"Iterator[{signature.return_annotation}]")
        checked = ArgumentCheck(function, signature)

        def method(self: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
            checked.check(args, kwargs)
            return self.listen(function(self, *args, **kwargs))

        self._method = _named(method, function, signature)

    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: BlockingClient, owner: type) -> Callable[P, Iterator[R]]: ...
    @overload
    def __get__(self, client: AwaitingClient, owner: type) -> Callable[P, AsyncIterator[R]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        """Return the method bound to a client; on the class, the function."""
        return self._method if client is None else MethodType(self._method, client)


def _named(method: Callable[..., Any], function: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """Give the method the name, the docstring and the signature that callers see."""
    for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(method, attribute, getattr(function, attribute))
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method
