"""Parses and validates OpenAI requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairway.serving.replica.model.served_model import ServedModel
from fairway.serving.replica.protocols.json_tensor import read_json
from fairway.serving.replica.protocols.openai.parameter import (
    CHAT,
    COMPLETION,
    EMBEDDINGS,
    MOST_CHOICES,
    ParameterError,
    check_count,
    given_options,
    stop_words,
    wanted_logprobs,
)  # fmt: skip
from fairway.serving.replica.request_error import bad

MOST_TEXTS = 4096
"""Maximum prompts, messages or inputs of one request: each takes memory besides its text."""
_MOST_TOKENS = 1 << 31


class _CompletionFields(msgspec.Struct):
    """The members common to both kinds of completions."""

    model: str
    max_tokens: int | None = None
    n: int | None = 1
    stop: str | list[str] | None = None
    stream: bool | None = False
    stream_options: dict[str, Any] | None = None


class _Completion(_CompletionFields):
    prompt: str | list[Any] = ""
    best_of: int | None = None
    echo: bool | None = False


class _ChatMessage(msgspec.Struct, forbid_unknown_fields=True):
    role: str
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    function_call: dict[str, Any] | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: dict[str, Any] | None = None


class _Chat(_CompletionFields, kw_only=True):
    messages: list[_ChatMessage]
    max_completion_tokens: int | None = None


class _Embeddings(msgspec.Struct):
    model: str
    input: str | list[Any]
    encoding_format: str | None = "float"


@dataclass(frozen=True, slots=True)
class TextRequest:
    """A request for text."""

    chat: bool
    prompts: tuple[Any, ...]
    """Texts, or a single list of messages."""
    options: dict[str, Any] = field(default_factory=dict)
    stop: tuple[str, ...] = ()
    stream: bool = False
    usage: bool = False
    """Whether a stream ends with its token usage."""
    choices: int = 1
    """Number of answers for each prompt."""
    echo: bool = False
    """Whether each answer begins with its prompt."""
    logprobs: int | None = None
    """How many likely tokens to report beside each token; None: no logprobs."""


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """A request for embeddings."""

    texts: list[str]
    as_base64: bool = False
    options: dict[str, Any] = field(default_factory=dict)


def read_completion(body: bytes, model: ServedModel) -> TextRequest:
    """Parse `POST /v1/completions`."""
    members = _fields(body)
    completion: _Completion = read_json(_COMPLETION, body)
    prompts = (completion.prompt,) if isinstance(completion.prompt, str) else tuple(completion.prompt)
    if not prompts:
        raise ParameterError("prompt", "prompt is empty", "send a text, or a list of texts")
    _check_texts("prompt", prompts)
    request = _text_request(completion, members, model, prompts, chat=False)
    if completion.best_of is not None and completion.best_of != request.choices:
        message = f"best_of is {completion.best_of} with n {request.choices}"
        raise ParameterError("best_of", message, "leave it out or send the same number as n: answers are not ranked")
    if request.echo and request.logprobs is not None:
        raise ParameterError("echo", "echo with logprobs: the tokens of a prompt get no logprobs", "leave one out")
    return request


def read_chat(body: bytes, model: ServedModel) -> TextRequest:
    """Parse `POST /v1/chat/completions`."""
    members = _fields(body)
    chat: _Chat = read_json(_CHAT, body)
    if not chat.messages:
        raise ParameterError("messages", "messages is empty", "send at least one")
    _check_count(len(chat.messages), "messages")
    messages = [_message(message, model) for message in chat.messages]
    return _text_request(chat, members, model, (messages,), chat=True)


def read_embeddings(body: bytes, model: ServedModel) -> EmbeddingRequest:
    """Parse `POST /v1/embeddings`."""
    members = _fields(body)
    request: _Embeddings = read_json(_EMBEDDINGS, body)
    _check_model(request.model, model)
    texts = [request.input] if isinstance(request.input, str) else request.input
    if not texts:
        raise ParameterError("input", "input is empty", "send a text, or a list of texts")
    _check_texts("input", texts)
    if request.encoding_format not in (None, "float", "base64"):
        raise ParameterError(
            "encoding_format", f"encoding_format {request.encoding_format!r} is not supported", "use float or base64"
        )
    options = given_options(members, EMBEDDINGS, model.embed_options)
    return EmbeddingRequest(texts, request.encoding_format == "base64", options)


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_COMPLETION = msgspec.json.Decoder(_Completion)
_CHAT = msgspec.json.Decoder(_Chat)
_EMBEDDINGS = msgspec.json.Decoder(_Embeddings)


def _fields(body: bytes) -> dict[str, msgspec.Raw]:
    members: dict[str, msgspec.Raw] = read_json(_FIELDS, body)
    return members


def _text_request(
    asked: _Completion | _Chat, given: dict[str, msgspec.Raw], model: ServedModel, prompts: tuple[Any, ...], *, chat: bool
) -> TextRequest:
    _check_model(asked.model, model)
    choices = check_count("n", asked.n, 1, MOST_CHOICES) or 1
    if choices * len(prompts) > MOST_TEXTS:
        message = f"n is {choices} for {len(prompts)} prompts"
        raise ParameterError("n", message, f"request at most {MOST_TEXTS} answers")
    options = given_options(given, CHAT if chat else COMPLETION, model.generate_options, chat=chat)
    limit = check_count("max_tokens", asked.max_tokens, 1, _MOST_TOKENS)
    if isinstance(asked, _Chat) and asked.max_completion_tokens is not None:
        limit = check_count("max_completion_tokens", asked.max_completion_tokens, 1, _MOST_TOKENS)
    if limit is not None:
        options["max_tokens"] = limit
    logprobs = wanted_logprobs(options, chat=chat)
    return TextRequest(
        chat=chat,
        prompts=prompts,
        options=options,
        stop=stop_words(asked.stop),
        stream=bool(asked.stream),
        usage=_wants_usage(asked, model),
        choices=choices,
        echo=isinstance(asked, _Completion) and bool(asked.echo),
        logprobs=logprobs,
    )


def _wants_usage(asked: _CompletionFields, model: ServedModel) -> bool:
    include_usage = False
    for name, value in (asked.stream_options or {}).items():
        if name == "include_usage":
            include_usage = bool(value)
        elif name != "include_obfuscation" or value is True:
            message = f"stream_options has {name[:40]!r}"
            raise ParameterError("stream_options", message, "only include_usage is supported", "unsupported_parameter")
    if asked.stream_options and not asked.stream:
        raise ParameterError("stream_options", "stream_options is given without stream", "send stream: true")
    if include_usage and not model.counts:
        message = "the model does not count its tokens, so there is no usage to include"
        raise ParameterError("stream_options", message, "leave stream_options out", "unsupported_parameter")
    return include_usage


def _check_texts(name: str, texts: Any) -> None:
    _check_count(len(texts), f"{name}s")
    for text in texts:
        if type(text) is not str:
            kind = "token ids" if isinstance(text, int | list) else type(text).__name__
            raise ParameterError(name, f"{name} has {kind}", "send text: token ids are specific to a model", "unsupported_value")


def _check_count(given: int, what: str) -> None:
    if given > MOST_TEXTS:
        message = f"the request has {given} {what}"
        raise bad(message, f"send at most {MOST_TEXTS}")


def _message(message: _ChatMessage, model: ServedModel) -> dict[str, Any]:
    """Return a message for the model: its role, its content, and its other members."""
    declared = model.generate_options
    if message.audio is not None and "audio" not in declared:
        raise ParameterError("messages", "a message has audio", "send only text", "unsupported_value")
    calls = message.tool_calls or message.tool_call_id or message.role == "tool"
    if (calls and "tools" not in declared) or (message.function_call and "functions" not in declared):
        raise ParameterError("messages", "a message has tool calls, which the model does not declare", "send only text",
                             "unsupported_value")  # fmt: skip
    converted: dict[str, Any] = {"role": message.role, "content": _content(message.content, declared)}
    for name in ("name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio"):
        if (value := getattr(message, name)) is not None:
            converted[name] = value
    return converted


def _content(content: str | list[dict[str, Any]] | None, declared: frozenset[str]) -> Any:
    """Return texts joined to one; other parts unchanged, if the model declares them."""
    if content is None or isinstance(content, str):
        return content or ""
    texts, has_other_parts = [], False
    for part in content:
        kind = part.get("type")
        if kind in ("text", "refusal") and isinstance(part.get(kind), str):
            texts.append(part[kind])
        elif isinstance(kind, str) and kind in declared:
            has_other_parts = True
        else:
            message = f"a message has a part of type {str(kind)[:40]!r}"
            raise ParameterError("messages", message, "send parts of type text", "unsupported_value")
    return content if has_other_parts else "".join(texts)


def _check_model(name: str, model: ServedModel) -> None:
    if name not in (model.name, f"{model.name}@{model.version}"):
        message = f"no model {name[:200]!r} here"
        raise ModelMissingError(message, f"{model.name!r} is served")


class ModelMissingError(ParameterError):
    """The requested model is not served here."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__("model", message, fix, "model_not_found", status=404)
