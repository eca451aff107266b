"""Answers to OpenAI requests: whole answers, events, embeddings and errors."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairway.serving.replica.model.datatype import Array
from fairway.serving.replica.model.served_model import ReplicaResponse, ServedModel
from fairway.serving.replica.protocols.openai.parameter import ParameterError
from fairway.serving.replica.protocols.openai.request import TextRequest
from fairway.serving.replica.request_error import ModelError, RequestError

DONE = b"data: [DONE]\n\n"


@dataclass(slots=True)
class TextPiece:
    """A piece of a model's answer: text and metadata."""

    text: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    """`logprob`, `top_logprobs`, `tool_calls`, `function_call`, `refusal`, as described in `docs/protocols.md`."""
    reason: str = ""
    """The finish reason, if the text ends here; otherwise empty."""
    usage: dict[str, int] | None = None
    """The model's own token counts, with the last piece."""


@dataclass(slots=True)
class CompletionChoice:
    """One complete answer."""

    pieces: list[TextPiece]

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def reason(self) -> str:
        """The finish reason."""
        return self.pieces[-1].reason if self.pieces and self.pieces[-1].reason else "stop"

    def all(self, name: str) -> list[Any]:
        """Return the values of a metadata key in all pieces."""
        return [piece.more[name] for piece in self.pieces if piece.more.get(name)]


class StopWordFilter:
    """Truncates a text that arrives in pieces at the first stop word, even if the word spans pieces."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words
        self._kept = ""
        """The end of the text so far that may be the beginning of a stop word."""
        self.stopped = False

    def feed(self, piece: str) -> str:
        """Add a piece; return the text that can be sent."""
        if not self._words:
            return piece
        text = self._kept + piece
        positions = [position for word in self._words if (position := text.find(word)) >= 0]
        if positions:
            self.stopped, self._kept = True, ""
            return text[: min(positions)]
        keep = max(_overlap(text, word) for word in self._words)
        self._kept = text[len(text) - keep :]
        return text[: len(text) - keep]

    def rest(self) -> str:
        """Return the text held back, at the end."""
        kept, self._kept = self._kept, ""
        return kept


def _overlap(text: str, word: str) -> int:
    """Return the length of the longest end of the text that is a proper prefix of the word."""
    return next((size for size in range(min(len(text), len(word) - 1), 0, -1) if text.endswith(word[:size])), 0)


class CompletionWriter:
    """Writes one completion, whole or as events."""

    def __init__(self, request: TextRequest, model: ServedModel, number: str, created: int) -> None:
        self._request = request
        prefix, self._kind = ("chatcmpl", "chat.completion") if request.chat else ("cmpl", "text_completion")
        self._same = {"id": f"{prefix}-{number}", "created": created, "model": model.name}
        self._offsets: dict[int, int] = {}
        """Number of characters written of each answer: completions report where a token begins."""
        self._calls: dict[int, int] = {}
        """Number of tool calls in the events of each answer so far."""

    def whole(self, choices: list[CompletionChoice], usage: dict[str, int] | None) -> ReplicaResponse:
        """Write all answers at once."""
        response: dict[str, object] = {
            **self._same,
            "object": self._kind,
            "choices": [self._choice(index, choice) for index, choice in enumerate(choices)],
        }
        if usage is not None:
            response["usage"] = usage
        return ReplicaResponse(msgspec.json.encode(response))

    def _choice(self, place: int, choice: CompletionChoice) -> dict[str, object]:
        content: dict[str, object]
        if self._request.chat:
            calls = _tool_calls([call for calls in choice.all("tool_calls") for call in calls])
            functions, refusals = choice.all("function_call"), choice.all("refusal")
            has_no_text = (calls or functions or refusals) and not choice.text
            message: dict[str, object] = {"role": "assistant", "content": None if has_no_text else choice.text}
            message["refusal"] = "".join(refusals) or None
            if calls:
                message["tool_calls"] = calls
            if functions:
                message["function_call"] = functions[0]
            content = {"message": message}
        else:
            content = {"text": choice.text}
        return {"index": place, **content, "logprobs": self._logprobs(place, choice.pieces), "finish_reason": choice.reason}

    def _logprobs(self, place: int, pieces: list[TextPiece]) -> dict[str, object] | None:
        if self._request.logprobs is None:
            return None
        rated = [piece for piece in pieces if piece.text or "logprob" in piece.more]
        if any("logprob" not in piece.more for piece in rated if not piece.more.get("unrated")):
            message = "the model declares logprobs, but returned a piece of text without its logprob"
            raise ModelError(500, message, fix='generate() should yield {"text": ..., "logprob": ...}')
        rated = [piece for piece in rated if "logprob" in piece.more]
        if self._request.chat:
            return {"content": [self._rated(piece) for piece in rated], "refusal": None}
        offsets, offset = [], self._offsets.get(place, 0)
        for piece in rated:
            offsets.append(offset)
            offset += len(_token(piece))
        self._offsets[place] = offset
        return {
            "tokens": [_token(piece) for piece in rated],
            "token_logprobs": [_finite(piece.more["logprob"]) for piece in rated],
            "top_logprobs": [
                {candidate["token"]: _finite(candidate["logprob"]) for candidate in self._top(piece)} for piece in rated
            ],
            "text_offset": offsets,
        }

    def _rated(self, piece: TextPiece) -> dict[str, object]:
        return {
            **_one_rated(_token(piece), piece.more["logprob"]),
            "top_logprobs": [_one_rated(candidate["token"], candidate["logprob"]) for candidate in self._top(piece)],
        }

    def _top(self, piece: TextPiece) -> list[dict[str, Any]]:
        return list(piece.more.get("top_logprobs") or ())[: self._request.logprobs or 0]

    def first(self, place: int = 0) -> bytes:
        """Write the first event of a stream: in a chat it sets the role."""
        return self._event(place, {"role": "assistant", "content": ""}, None) if self._request.chat else b""

    def piece(self, piece: TextPiece, place: int = 0) -> bytes:
        """Write a piece."""
        logprobs = self._logprobs(place, [piece])
        if not self._request.chat:
            return self._event(place, piece.text, None, logprobs)
        delta: dict[str, object] = {"content": piece.text} if piece.text or not piece.more else {}
        if calls := piece.more.get("tool_calls"):
            count = self._calls.get(place, 0)
            self._calls[place] = count + len(calls)
            delta["tool_calls"] = [{"index": count + index, **call} for index, call in enumerate(_tool_calls(calls, count))]
        for name in ("function_call", "refusal"):
            if piece.more.get(name):
                delta[name] = piece.more[name]
        return self._event(place, delta, None, logprobs)

    def last(self, reason: str, place: int = 0) -> bytes:
        """Write the finish reason."""
        return self._event(place, {} if self._request.chat else "", reason)

    def used(self, usage: dict[str, int]) -> bytes:
        """Write the usage, after the last piece."""
        return self._sent({**self._same, "object": self._chunk, "choices": [], "usage": usage})

    @property
    def _chunk(self) -> str:
        return "chat.completion.chunk" if self._request.chat else "text_completion"

    def _event(self, place: int, said: object, reason: str | None, logprobs: dict[str, object] | None = None) -> bytes:
        key = "delta" if self._request.chat else "text"
        choice = {"index": place, key: said, "logprobs": logprobs, "finish_reason": reason}
        event = {**self._same, "object": self._chunk, "choices": [choice]}
        return self._sent({**event, "usage": None} if self._request.usage else event)

    @staticmethod
    def _sent(value: object) -> bytes:
        return b"data: " + msgspec.json.encode(value) + b"\n\n"


def _token(piece: TextPiece) -> str:
    return str(piece.more.get("token", piece.text))


def _one_rated(token: str, logprob: float) -> dict[str, object]:
    return {"token": token, "logprob": _finite(logprob), "bytes": list(token.encode(errors="replace"))}


def _finite(logprob: float) -> float:
    """Replace negative infinity, which JSON lacks; OpenAI writes -9999 for impossible tokens."""
    return float(logprob) if logprob > -9999.0 else -9999.0


def _tool_calls(calls: Any, first: int = 0) -> list[dict[str, object]]:
    """Convert tool calls from the model's short form to that of the protocol."""
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


def write_embeddings(model: ServedModel, vectors: Array, *, as_base64: bool, tokens: int | None) -> ReplicaResponse:
    """Write one vector per text."""

    def one(row: Array) -> object:
        return base64.b64encode(row.astype("<f4").tobytes()).decode() if as_base64 else row.tolist()

    data = [{"object": "embedding", "index": index, "embedding": one(row)} for index, row in enumerate(vectors)]
    response: dict[str, object] = {"object": "list", "data": data, "model": model.name}
    response["usage"] = {"prompt_tokens": tokens or 0, "total_tokens": tokens or 0}
    return ReplicaResponse(msgspec.json.encode(response))


def event_error(error: RequestError) -> bytes:
    """Write an error within a stream."""
    return b"data: " + write_error(error).body + b"\n\n"


def write_error(error: RequestError) -> ReplicaResponse:
    """Write an error in OpenAI's format."""
    kind = "server_error" if error.status >= 500 else "rate_limit_error" if error.status == 429 else "invalid_request_error"
    details: dict[str, object] = {"message": error.words, "type": kind, "param": None, "code": None}
    if isinstance(error, ParameterError):
        details |= {"param": error.parameter, "code": error.kind}
    headers = list(error.headers)
    if error.retry_after:
        headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after))))
    return ReplicaResponse(msgspec.json.encode({"error": details}), error.status, headers)
