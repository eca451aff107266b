"""Answers to OpenAI's clients: whole, as events, as vectors, and as errors."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairway.serving.replica.datatypes import Array
from fairway.serving.replica.model import Answer, ServedModel
from fairway.serving.replica.problem import ModelError, RequestError
from fairway.serving.replica.protocols.openai.parameters import ParameterError
from fairway.serving.replica.protocols.openai.requests import TextRequest

DONE = b"data: [DONE]\n\n"


@dataclass(slots=True)
class Piece:
    """What a model gave at once: text, and what it says besides."""

    text: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    """`logprob`, `top_logprobs`, `tool_calls`, `function_call`, `refusal`, as `docs/protocols.md` has them."""
    reason: str = ""
    """Why the text ends here; empty: it goes on."""
    usage: dict[str, int] | None = None
    """Tokens by the model's own count, with the last piece."""


@dataclass(slots=True)
class Choice:
    """One answer, whole."""

    pieces: list[Piece]

    @property
    def text(self) -> str:
        """All its text."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def reason(self) -> str:
        """Why it ended."""
        return self.pieces[-1].reason if self.pieces and self.pieces[-1].reason else "stop"

    def all(self, name: str) -> list[Any]:
        """What its pieces have under a name."""
        return [piece.more[name] for piece in self.pieces if piece.more.get(name)]


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

    def __init__(self, request: TextRequest, model: ServedModel, number: str, created: int) -> None:
        self._request = request
        prefix, self._kind = ("chatcmpl", "chat.completion") if request.chat else ("cmpl", "text_completion")
        self._same = {"id": f"{prefix}-{number}", "created": created, "model": model.name}
        self._offsets: dict[int, int] = {}
        """How many characters of each answer are written: completions tell where a token begins."""
        self._calls: dict[int, int] = {}
        """How many calls of tools each answer has in its events so far."""

    def whole(self, choices: list[Choice], usage: dict[str, int] | None) -> Answer:
        """All answers."""
        told: dict[str, object] = {
            **self._same,
            "object": self._kind,
            "choices": [self._choice(place, choice) for place, choice in enumerate(choices)],
        }
        if usage is not None:
            told["usage"] = usage
        return Answer(msgspec.json.encode(told))

    def _choice(self, place: int, choice: Choice) -> dict[str, object]:
        said: dict[str, object]
        if self._request.chat:
            calls = _tool_calls([call for calls in choice.all("tool_calls") for call in calls])
            functions, refusals = choice.all("function_call"), choice.all("refusal")
            silent = (calls or functions or refusals) and not choice.text
            message: dict[str, object] = {"role": "assistant", "content": None if silent else choice.text}
            message["refusal"] = "".join(refusals) or None
            if calls:
                message["tool_calls"] = calls
            if functions:
                message["function_call"] = functions[0]
            said = {"message": message}
        else:
            said = {"text": choice.text}
        return {"index": place, **said, "logprobs": self._logprobs(place, choice.pieces), "finish_reason": choice.reason}

    def _logprobs(self, place: int, pieces: list[Piece]) -> dict[str, object] | None:
        if self._request.logprobs is None:
            return None
        rated = [piece for piece in pieces if piece.text or "logprob" in piece.more]
        if any("logprob" not in piece.more for piece in rated if not piece.more.get("unrated")):
            message = "the model declares logprobs, and gave a piece of text without its logprob"
            raise ModelError(500, message, fix='generate() should yield {"text": ..., "logprob": ...}')
        rated = [piece for piece in rated if "logprob" in piece.more]
        if self._request.chat:
            return {"content": [self._rated(piece) for piece in rated], "refusal": None}
        offsets, at = [], self._offsets.get(place, 0)
        for piece in rated:
            offsets.append(at)
            at += len(_token(piece))
        self._offsets[place] = at
        return {
            "tokens": [_token(piece) for piece in rated],
            "token_logprobs": [_finite(piece.more["logprob"]) for piece in rated],
            "top_logprobs": [{each["token"]: _finite(each["logprob"]) for each in self._top(piece)} for piece in rated],
            "text_offset": offsets,
        }

    def _rated(self, piece: Piece) -> dict[str, object]:
        return {
            **_one_rated(_token(piece), piece.more["logprob"]),
            "top_logprobs": [_one_rated(each["token"], each["logprob"]) for each in self._top(piece)],
        }

    def _top(self, piece: Piece) -> list[dict[str, Any]]:
        return list(piece.more.get("top_logprobs") or ())[: self._request.logprobs or 0]

    def first(self, place: int = 0) -> bytes:
        """How a stream begins: a chat says who speaks."""
        return self._event(place, {"role": "assistant", "content": ""}, None) if self._request.chat else b""

    def piece(self, piece: Piece, place: int = 0) -> bytes:
        """One more piece."""
        logprobs = self._logprobs(place, [piece])
        if not self._request.chat:
            return self._event(place, piece.text, None, logprobs)
        said: dict[str, object] = {"content": piece.text} if piece.text or not piece.more else {}
        if calls := piece.more.get("tool_calls"):
            before = self._calls.get(place, 0)
            self._calls[place] = before + len(calls)
            said["tool_calls"] = [{"index": before + at, **call} for at, call in enumerate(_tool_calls(calls, before))]
        for name in ("function_call", "refusal"):
            if piece.more.get(name):
                said[name] = piece.more[name]
        return self._event(place, said, None, logprobs)

    def last(self, reason: str, place: int = 0) -> bytes:
        """Why it ended."""
        return self._event(place, {} if self._request.chat else "", reason)

    def used(self, usage: dict[str, int]) -> bytes:
        """What it used, after the last piece."""
        return self._sent({**self._same, "object": self._chunk, "choices": [], "usage": usage})

    @property
    def _chunk(self) -> str:
        return "chat.completion.chunk" if self._request.chat else "text_completion"

    def _event(self, place: int, said: object, reason: str | None, logprobs: dict[str, object] | None = None) -> bytes:
        key = "delta" if self._request.chat else "text"
        choice = {"index": place, key: said, "logprobs": logprobs, "finish_reason": reason}
        told = {**self._same, "object": self._chunk, "choices": [choice]}
        return self._sent({**told, "usage": None} if self._request.usage else told)

    @staticmethod
    def _sent(value: object) -> bytes:
        return b"data: " + msgspec.json.encode(value) + b"\n\n"


def _token(piece: Piece) -> str:
    return str(piece.more.get("token", piece.text))


def _one_rated(token: str, logprob: float) -> dict[str, object]:
    return {"token": token, "logprob": _finite(logprob), "bytes": list(token.encode(errors="replace"))}


def _finite(logprob: float) -> float:
    """JSON has no infinity; OpenAI writes -9999 for what is impossible."""
    return float(logprob) if logprob > -9999.0 else -9999.0


def _tool_calls(calls: Any, first: int = 0) -> list[dict[str, object]]:
    """Calls of tools as the protocol has them, from the model's short form."""
    return [
        {
            "id": str(call.get("id") or f"call_{number}"),
            "type": "function",
            "function": {"name": str(call["name"]), "arguments": _as_text(call.get("arguments", "{}"))},
        }
        for number, call in enumerate(calls, first)
    ]


def _as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


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
    told: dict[str, object] = {"message": error.words, "type": kind, "param": None, "code": None}
    if isinstance(error, ParameterError):
        told |= {"param": error.parameter, "code": error.kind}
    headers = list(error.headers)
    if error.retry_after:
        headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after))))
    return Answer(msgspec.json.encode({"error": told}), error.status, headers)
