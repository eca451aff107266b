"""The parameters of OpenAI requests: those the replica implements, those the model must declare, and those without meaning here.

No parameter is ignored silently. A parameter that the model does not declare is accepted only with a value that has no effect;
any other value is refused with 400, and the error names the parameter.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from fairway.serving.replica.request_error import RequestError

MOST_CHOICES = 128
"""Maximum of `n`, as at OpenAI."""
_MOST_STOPS = 64
_MOST_NAME = 100

COMPLETION = frozenset({"best_of", "echo", "max_tokens", "model", "n", "prompt", "stop", "stream", "stream_options"})
"""Parameters that the replica itself implements, for any model that generates."""
CHAT = frozenset({"max_completion_tokens", "max_tokens", "messages", "model", "n", "stop", "stream", "stream_options"})
EMBEDDINGS = frozenset({"encoding_format", "input", "model"})

_LABELS = frozenset(
    {"metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "user"}
)
"""Labels for the accounting and caches of a provider: by definition they do not affect the answer."""
_NOTHING: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"],),
    "n": (1,),
    "parallel_tool_calls": (True, False),
    "presence_penalty": (0,),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": ("",),
    "temperature": (1,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "top_p": (1,),
    "verbosity": ("medium",),
}
"""Values without effect: OpenAI's defaults. `null` is one for every parameter."""
_ONLY_CHAT = frozenset({"functions", "function_call", "modalities", "parallel_tool_calls", "response_format", "service_tier",
                        "store", "tool_choice", "tools", "top_logprobs", "verbosity"})  # fmt: skip
_WITH = {"function_call": "functions", "parallel_tool_calls": "tools", "tool_choice": "tools", "top_logprobs": "logprobs"}
"""Parameters that a model accepts if it declares another one."""
_RANGES: dict[str, tuple[float, float]] = {
    "frequency_penalty": (-2, 2), "presence_penalty": (-2, 2), "temperature": (0, 2), "top_p": (0, 1),
    "seed": (-(1 << 63), (1 << 63) - 1), "top_logprobs": (0, 20), "dimensions": (1, 1 << 20),
}  # fmt: skip
_WHOLE = frozenset({"dimensions", "seed", "top_logprobs"})


class ParameterError(RequestError):
    """A parameter that is refused."""

    def __init__(self, parameter: str, message: str, fix: str = "", kind: str = "invalid_value", status: int = 400) -> None:
        super().__init__(status, message, fix=fix)
        self.parameter = parameter
        self.kind = kind
        """OpenAI's error `code`."""


def given_options(
    given: dict[str, msgspec.Raw], own: frozenset[str], declared: frozenset[str], *, chat: bool = False
) -> dict[str, Any]:
    """Return the checked options for the model: those in the request that the model declares.

    `own`: parameters that the replica itself implements.
    """
    options: dict[str, Any] = {}
    for name, raw in given.items():
        if name in own or name in _LABELS:
            continue
        value = _value(name, raw)
        if value is None:
            continue
        if name in declared or _WITH.get(name) in declared:
            _check_range(name, value)
            options[name] = value
        elif not _is_nothing(name, value, chat=chat):
            raise _refused(name, declared, chat=chat)
    return options


def _value(name: str, raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:  # a number out of range
        message = f"{name[:_MOST_NAME]}: {error}"
        raise ParameterError(name[:_MOST_NAME], message) from None


def _is_nothing(name: str, value: Any, *, chat: bool) -> bool:
    if name in _ONLY_CHAT and not chat:
        return False
    return any(value == neutral and (type(value) is bool) == (type(neutral) is bool) for neutral in _NOTHING.get(name, ()))


def _refused(name: str, declared: frozenset[str], *, chat: bool) -> ParameterError:
    name = name[:_MOST_NAME]
    nothing = _NOTHING.get(name, ()) if chat or name not in _ONLY_CHAT else ()
    alternative = f" or send {msgspec.json.encode(nothing[0]).decode()}" if nothing else ""
    fix = f"leave it out{alternative}; the model declares: {', '.join(sorted(declared)) or 'nothing'}"
    return ParameterError(name, f"the model does not take the parameter {name!r}", fix, "unsupported_parameter")


def _check_range(name: str, value: Any) -> None:
    if name not in _RANGES:
        return
    least, most = _RANGES[name]
    is_integer = name in _WHOLE
    if type(value) not in ((int,) if is_integer else (int, float)) or not least <= value <= most or not math.isfinite(value):
        message = f"{name} is {str(value)[:40]}"
        raise ParameterError(name, message, f"send a{' whole' * is_integer} number from {least:g} to {most:g}")


def check_count(name: str, value: int | None, least: int, most: int) -> int | None:
    """Check that an integer is within its range."""
    if value is not None and not least <= value <= most:
        message = f"{name} is {str(value)[:40]}"
        raise ParameterError(name, message, f"send a whole number from {least} to {most}")
    return value


def stop_words(stop: str | list[str] | None) -> tuple[str, ...]:
    """Return the texts that end an answer."""
    words = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(words) > _MOST_STOPS:
        message = f"stop has {len(words)} texts"
        raise ParameterError("stop", message, f"send at most {_MOST_STOPS}")
    return tuple(text for text in words if text)


def wanted_logprobs(options: dict[str, Any], *, chat: bool) -> int | None:
    """Return how many likely tokens to report beside each token; None if logprobs are not requested.

    The number also replaces `logprobs` in the options.
    """
    setting = options.pop("logprobs", None)
    top = options.pop("top_logprobs", None)
    if chat:
        if setting not in (None, True, False) or isinstance(setting, int) is not isinstance(setting, bool):
            raise ParameterError(
                "logprobs", f"logprobs is {str(setting)[:40]}", "send true or false, and the number as top_logprobs"
            )
        if top and not setting:
            raise ParameterError("top_logprobs", "top_logprobs is given without logprobs", "send logprobs: true")
        count = int(top or 0) if setting else None
    else:
        if setting is not None and (type(setting) is not int or not 0 <= setting <= 20):  # OpenAI: 5, vLLM: 20
            raise ParameterError("logprobs", f"logprobs is {str(setting)[:40]}", "send a whole number from 0 to 20")
        count = setting
    if count is not None:
        options["logprobs"] = count
    return count
