"""Checks of arguments against a method's signature: unknown keywords and wrong types are refused at once."""

from __future__ import annotations

import collections.abc
import inspect
import types
from collections.abc import Callable
from typing import Any, ForwardRef, Union, get_args, get_origin, get_type_hints

from fairway.errors import UsageError
from fairway.sdk.run_option import RunOptions
from fairway.units.number import finite
from fairway.units.suggestion import did_you_mean

_SHOWN = 60


class ArgumentError(UsageError, TypeError):
    """An argument that a method does not accept. Also a `TypeError`, as Python's own calls raise."""


class _DocumentDefault:
    """The default of a wish: the document decides."""

    def __repr__(self) -> str:
        """Return the text shown in signatures."""
        return "..."


LEFT_OUT = _DocumentDefault()


def signature_of(function: Callable[..., object], container: str) -> inspect.Signature:
    """Return the signature for callers: each wish as a keyword, and the type inside `container` (`Steps[JobView]`: `JobView`)."""
    plain = inspect.signature(function)
    parameters = []
    for parameter in plain.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD and "RunOptions" in str(parameter.annotation):
            parameters += [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=LEFT_OUT, annotation=_written(hint))
                for name, hint in RunOptions.__annotations__.items()
            ]
        else:
            parameters.append(parameter)
    annotation = str(plain.return_annotation)
    returned = annotation.removeprefix(f"{container}[").removesuffix("]") if annotation.startswith(container) else annotation
    return plain.replace(parameters=parameters, return_annotation=returned)


class ArgumentCheck:
    """Checks the arguments of one method. Type hints are resolved at the first call, so that importing costs nothing."""

    def __init__(self, function: Callable[..., object], signature: inspect.Signature) -> None:
        self._function = function
        self._signature = signature
        self._hints: dict[str, Any] | None = None

    def check(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """Raise `ArgumentError` for an argument that is unknown, missing, or of another type."""
        name, parameters = self._function.__name__, self._signature.parameters
        for keyword in kwargs:
            if keyword not in parameters or keyword == "self":
                message = f"{name}() has no keyword {keyword!r}"
                words = ", ".join(parameter for parameter in parameters if parameter != "self")
                raise ArgumentError(message, fix=did_you_mean(keyword, parameters) or f"it takes {words}")
        try:
            bound = self._signature.bind(None, *args, **kwargs)
        except TypeError as error:
            message = f"{name}(): {error}"
            raise ArgumentError(message, fix=f"call it as {name}{_shown_signature(self._signature)}") from None
        if self._hints is None:
            self._hints = {**get_type_hints(RunOptions), **get_type_hints(self._function)}
        for keyword, value in bound.arguments.items():
            hint = self._hints.get(keyword, Any)
            if keyword != "self" and parameters[keyword].kind is not inspect.Parameter.VAR_POSITIONAL and not fits(value, hint):
                shown = repr(value)
                shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
                message = f"{name}(): {keyword}={shown} is of type {type(value).__name__}"
                raise ArgumentError(message, fix=f"give {wanted(hint)}{_instead(value, hint)}")


def fits(value: object, hint: Any) -> bool:
    """Whether a value has a type. True and False are not numbers; an int is a float."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(value, item) for item in inner)
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(key, inner[0]) and fits(item, inner[1]) for key, item in value.items())
    if origin in (list, tuple):
        return isinstance(value, (list, tuple)) and all(fits(item, inner[0]) for item in value)
    return isinstance(value, origin or hint)


def wanted(hint: Any) -> str:
    """Return a type in words: `str or JobView`."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        words = [wanted(argument) for argument in get_args(hint)]
        return " or ".join(dict.fromkeys(words))
    if origin is collections.abc.Callable:
        return "a function"
    if hint is type(None):
        return "None"
    if origin is dict:
        return f"a dict of {' to '.join(wanted(argument) for argument in get_args(hint))}"
    if origin in (list, tuple):
        return f"a {origin.__name__} of {wanted(get_args(hint)[0])}"
    return getattr(origin or hint, "__name__", str(hint))


def _instead(value: object, hint: Any) -> str:
    """Return the value that was probably intended: `"64"` for 64, `2` for "2"."""
    if isinstance(value, str) and hint in (int, float):
        try:
            number = finite(float(value))
        except ValueError:
            return ""
        return "" if number is None else f": {hint(number)}"
    if get_origin(hint) is list and isinstance(value, str):
        return f": [{value!r}]"
    if get_origin(hint) is dict and isinstance(value, dict) and get_args(hint) == (str, str):
        return ": " + repr({str(key): str(item) for key, item in list(value.items())[:3]})
    return f': "{value}"' if hint is str and isinstance(value, (int, float)) else ""


def _written(hint: object) -> str:
    return hint.__forward_arg__ if isinstance(hint, ForwardRef) else str(hint)


def _shown_signature(signature: inspect.Signature) -> str:
    short = [
        parameter for parameter in signature.parameters.values() if parameter.default is not LEFT_OUT and parameter.name != "self"
    ]
    return str(signature.replace(parameters=short, return_annotation=inspect.Signature.empty)).replace("'", "")
