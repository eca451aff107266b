"""The routes of OpenAI: completions, chat, embeddings, models; for models that generate text or embed it."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairway.serving.replica.datatypes import Array
from fairway.serving.replica.model import Answer, ServedModel
from fairway.serving.replica.problem import RequestError, bad
from fairway.serving.replica.protocols.values import read_json

MOST_TEXTS = 4096
"""Prompts, messages or inputs of one request: each takes memory beside its text."""
DONE = b"data: [DONE]\n\n"


class _Asked(msgspec.Struct):
    """What both kinds of completion share."""

    model: str
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int | None = 1
    stream: bool | None = False
    stream_options: dict[str, Any] | None = None


class _Completion(_Asked):
    prompt: str | list[str] = ""


class _Part(msgspec.Struct):
    type: str
    text: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = ""


class _Chat(_Asked, kw_only=True):
    messages: list[_Message]


class _Embeddings(msgspec.Struct):
    model: str
    input: str | list[str]
    encoding_format: str = "float"


@dataclass(frozen=True, slots=True)
class Wish:
    """Text that is asked for."""

    chat: bool
    prompts: tuple[Any, ...]
    """Texts, or one list of messages."""
    options: dict[str, Any] = field(default_factory=dict)
    stop: tuple[str, ...] = ()
    stream: bool = False
    usage: bool = False
    """Whether a stream ends with what it used."""


def read_completion(body: bytes, model: ServedModel) -> Wish:
    """`POST /v1/completions`."""
    asked: _Completion = read_json(_COMPLETION, body)
    prompts = (asked.prompt,) if isinstance(asked.prompt, str) else tuple(asked.prompt)
    if not prompts:
        raise bad("prompt is empty", "send a text, or a list of texts")
    _check_count(len(prompts), "prompts")
    if asked.stream and len(prompts) > 1:
        raise bad(f"{len(prompts)} prompts in one stream", "stream one prompt a request")
    return _wish(asked, model, prompts, chat=False)


def read_chat(body: bytes, model: ServedModel) -> Wish:
    """`POST /v1/chat/completions`."""
    asked: _Chat = read_json(_CHAT, body)
    if not asked.messages:
        raise bad("messages is empty", "send one at least")
    _check_count(len(asked.messages), "messages")
    messages = [{"role": message.role, "content": _content(message)} for message in asked.messages]
    return _wish(asked, model, (messages,), chat=True)


def read_embeddings(body: bytes, model: ServedModel) -> tuple[list[str], bool]:
    """`POST /v1/embeddings`: the texts, and whether the vectors go as base64."""
    asked: _Embeddings = read_json(_EMBEDDINGS, body)
    _check_model(asked.model, model)
    texts = [asked.input] if isinstance(asked.input, str) else asked.input
    if not texts:
        raise bad("input is empty", "send a text, or a list of texts")
    _check_count(len(texts), "inputs")
    if asked.encoding_format not in ("float", "base64"):
        raise bad(f"encoding_format {asked.encoding_format!r} is not known", "float or base64")
    return texts, asked.encoding_format == "base64"


_COMPLETION = msgspec.json.Decoder(_Completion)
_CHAT = msgspec.json.Decoder(_Chat)
_EMBEDDINGS = msgspec.json.Decoder(_Embeddings)


def _wish(asked: _Asked, model: ServedModel, prompts: tuple[Any, ...], *, chat: bool) -> Wish:
    _check_model(asked.model, model)
    if asked.n not in (None, 1):
        raise bad(f"n is {asked.n}", "one answer a request is given")
    limit = asked.max_completion_tokens if asked.max_completion_tokens is not None else asked.max_tokens
    if limit is not None and limit < 1:
        raise bad(f"max_tokens is {limit}", "1 at least")
    given = {"max_tokens": limit, "temperature": asked.temperature, "top_p": asked.top_p, "seed": asked.seed}
    stop = (asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop or ())
    return Wish(
        chat=chat,
        prompts=prompts,
        options={name: value for name, value in given.items() if value is not None},
        stop=tuple(text for text in stop if text),
        stream=bool(asked.stream),
        usage=bool((asked.stream_options or {}).get("include_usage")),
    )


def _check_count(given: int, what: str) -> None:
    if given > MOST_TEXTS:
        message = f"the request has {given} {what}"
        raise bad(message, f"send {MOST_TEXTS} at the most")


def _content(message: _Message) -> str:
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    for part in message.content:
        if part.type != "text":
            raise bad(f"a message has a part of type {part.type!r}", "only text is taken")
    return "".join(part.text for part in message.content)


def _check_model(name: str, model: ServedModel) -> None:
    if name not in (model.name, f"{model.name}@{model.version}"):
        message = f"no model {name!r} here"
        raise RequestError(404, message, fix=f"{model.name!r} is served")


class Stops:
    """Cuts a text that comes in pieces at the first of some words, even when one lies across pieces."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words
        self._kept = ""
        """The end of the text so far that might be the beginning of one of the words."""
        self.stopped = False

    def feed(self, piece: str) -> str:
        """What of the text can go out."""
        if not self._words:
            return piece
        text = self._kept + piece
        found = [at for word in self._words if (at := text.find(word)) >= 0]
        if found:
            self.stopped, self._kept = True, ""
            return text[: min(found)]
        keep = max(_overlap(text, word) for word in self._words)
        self._kept = text[len(text) - keep :]
        return text[: len(text) - keep]

    def rest(self) -> str:
        """What was held back, at the end."""
        kept, self._kept = self._kept, ""
        return kept


def _overlap(text: str, word: str) -> int:
    """How much of the end of a text is a beginning of a word."""
    return next((size for size in range(min(len(text), len(word) - 1), 0, -1) if text.endswith(word[:size])), 0)


class Writer:
    """Writes one completion, whole or as events."""

    def __init__(self, wish: Wish, model: ServedModel, number: str, created: int) -> None:
        self._wish = wish
        prefix, self._kind = ("chatcmpl", "chat.completion") if wish.chat else ("cmpl", "text_completion")
        self._same = {"id": f"{prefix}-{number}", "created": created, "model": model.name}

    def whole(self, texts: list[tuple[str, str]], usage: dict[str, int] | None) -> Answer:
        """All texts, each with why it ended."""
        choices = [self._choice(place, text, reason) for place, (text, reason) in enumerate(texts)]
        told: dict[str, object] = {**self._same, "object": self._kind, "choices": choices}
        if usage is not None:
            told["usage"] = usage
        return Answer(msgspec.json.encode(told))

    def _choice(self, place: int, text: str, reason: str) -> dict[str, object]:
        said: dict[str, object] = {"message": {"role": "assistant", "content": text}} if self._wish.chat else {"text": text}
        return {"index": place, **said, "logprobs": None, "finish_reason": reason}

    def first(self) -> bytes:
        """How a stream begins: a chat says who speaks."""
        return self._event({"role": "assistant", "content": ""}, None) if self._wish.chat else b""

    def piece(self, text: str) -> bytes:
        """One more piece."""
        return self._event({"content": text}, None) if self._wish.chat else self._event(text, None)

    def last(self, reason: str) -> bytes:
        """Why it ended."""
        return self._event({} if self._wish.chat else "", reason)

    def used(self, usage: dict[str, int]) -> bytes:
        """What it used, after the last piece."""
        return self._sent({**self._same, "object": self._chunk, "choices": [], "usage": usage})

    @property
    def _chunk(self) -> str:
        return "chat.completion.chunk" if self._wish.chat else "text_completion"

    def _event(self, said: object, reason: str | None) -> bytes:
        key = "delta" if self._wish.chat else "text"
        choice = {"index": 0, key: said, "logprobs": None, "finish_reason": reason}
        return self._sent({**self._same, "object": self._chunk, "choices": [choice]})

    @staticmethod
    def _sent(value: object) -> bytes:
        return b"data: " + msgspec.json.encode(value) + b"\n\n"


def write_embeddings(model: ServedModel, vectors: Array, *, as_base64: bool, tokens: int | None) -> Answer:
    """One vector a text."""

    def one(row: Array) -> object:
        return base64.b64encode(row.astype("<f4").tobytes()).decode() if as_base64 else row.tolist()

    data = [{"object": "embedding", "index": place, "embedding": one(row)} for place, row in enumerate(vectors)]
    told: dict[str, object] = {"object": "list", "data": data, "model": model.name}
    told["usage"] = {"prompt_tokens": tokens or 0, "total_tokens": tokens or 0}
    return Answer(msgspec.json.encode(told))


def event_error(error: RequestError) -> bytes:
    """An error in the middle of a stream."""
    return b"data: " + write_error(error).body + b"\n\n"


def write_error(error: RequestError) -> Answer:
    """An error as these clients expect it."""
    kind = "server_error" if error.status >= 500 else "rate_limit_error" if error.status == 429 else "invalid_request_error"
    told = {"error": {"message": error.words, "type": kind, "param": None, "code": None}}
    headers = list(error.headers)
    if error.retry_after:
        headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after))))
    return Answer(msgspec.json.encode(told), error.status, headers)
