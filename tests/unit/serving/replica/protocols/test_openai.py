"""OpenAI's routes: requests read, answers and events written."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from small_models import served, signature

from fairway.serving.replica.protocols import openai
from fairway.serving.replica.protocols.openai import CompletionChoice, CompletionWriter, StopWordFilter, TextPiece
from fairway.serving.replica.request_error import RequestError

OPTIONS = frozenset({"seed", "temperature", "top_p"})
MODEL = served(signature(), generates=True, embeds=True, counts=True, generate_options=OPTIONS)


def sent(**parts: Any) -> bytes:
    return json.dumps({"model": "m", **parts}).encode()


def choice(text: str, reason: str, **more: Any) -> CompletionChoice:
    return CompletionChoice([TextPiece(text, more, reason)])


def test_a_completion() -> None:
    wish = openai.read_completion(sent(prompt=["a", "b"], max_tokens=3, temperature=0.5, stop="."), MODEL)
    assert (wish.prompts, wish.options, wish.stop) == (("a", "b"), {"max_tokens": 3, "temperature": 0.5}, (".",))
    data = json.loads(CompletionWriter(wish, MODEL, "1", 5).whole([choice("x", "stop"), choice("y", "length")], None).body)
    assert [(each["index"], each["text"], each["finish_reason"]) for each in data["choices"]] == [
        (0, "x", "stop"),
        (1, "y", "length"),
    ]
    assert (data["object"], data["id"], "usage" in data) == ("text_completion", "cmpl-1", False)


def test_a_chat_in_parts_and_pieces() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    asked = sent(messages=[{"role": "user", "content": content}], stream=True, stream_options={"include_usage": True})
    wish = openai.read_chat(asked, MODEL)
    assert (wish.prompts, wish.stream, wish.usage) == (([{"role": "user", "content": "ab"}],), True, True)
    writer = CompletionWriter(wish, MODEL, "1", 5)
    events = [
        json.loads(event.removeprefix(b"data: ")) for event in (writer.first(), writer.piece(TextPiece("x")), writer.last("stop"))
    ]
    assert [event["choices"][0]["delta"] for event in events] == [{"role": "assistant", "content": ""}, {"content": "x"}, {}]
    assert events[2]["choices"][0]["finish_reason"] == "stop"
    assert {event["object"] for event in events} == {"chat.completion.chunk"}


@pytest.mark.parametrize(
    ("read", "asked", "status", "words"),
    [
        (openai.read_completion, b"{", 400, "not valid JSON"),
        (openai.read_completion, sent(prompt=[]), 400, "empty"),
        (openai.read_completion, sent(prompt=[1, 2]), 400, "prompt has token ids"),
        (openai.read_completion, sent(prompt="a", n=10**9), 400, "n is 1000000000"),
        (openai.read_completion, sent(prompt=["a"] * 100, n=128), 400, "n is 128 for 100 prompts"),
        (openai.read_completion, sent(prompt="a", max_tokens=0), 400, "max_tokens is 0"),
        (openai.read_completion, json.dumps({"model": "other", "prompt": "a"}).encode(), 404, "no model 'other'"),
        (openai.read_chat, sent(messages=[]), 400, "empty"),
        (openai.read_chat, sent(), 400, "messages"),
        (openai.read_chat, sent(messages=[{"role": "user", "content": [{"type": "image_url"}]}]), 400, "image_url"),
        (openai.read_embeddings, sent(input=[]), 400, "empty"),
        (openai.read_embeddings, sent(input="a", encoding_format="int8"), 400, "int8"),
    ],
)
def test_what_is_wrong_is_said(read: Any, asked: bytes, status: int, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        read(asked, MODEL)
    assert caught.value.status == status


def test_vectors_as_numbers_and_as_base64() -> None:
    vectors = np.array([[1, 2], [3, 4]], np.float32)
    data = json.loads(openai.write_embeddings(MODEL, vectors, as_base64=False, tokens=4).body)
    assert [each["embedding"] for each in data["data"]] == [[1, 2], [3, 4]]
    assert data["usage"]["total_tokens"] == 4
    data = json.loads(openai.write_embeddings(MODEL, vectors, as_base64=True, tokens=None).body)
    assert base64.b64decode(data["data"][1]["embedding"]) == vectors[1].tobytes()


@given(some.text("ab.", max_size=30), some.lists(some.text("ab.", min_size=1, max_size=3), max_size=3), some.randoms())
def test_a_text_is_cut_at_the_first_word_however_it_comes_in_pieces(text: str, words: list[str], chance: Any) -> None:
    stops, out, rest = StopWordFilter(tuple(words)), "", text
    while rest and not stops.stopped:
        size = chance.randint(1, 4)
        out += stops.feed(rest[:size])
        rest = rest[size:]
    if not stops.stopped:
        out += stops.rest()
    found = [at for word in words if (at := text.find(word)) >= 0]
    # A longer stop word that begins earlier may be complete only after a shorter one has ended the text.
    assert out == text or (stops.stopped and any(text[len(out) :].startswith(word) for word in words))
    assert stops.stopped == bool(found)


def test_errors_have_the_form_that_clients_know() -> None:
    answer = openai.write_error(RequestError(429, "too many", fix="try again later", retry_after=2.0))
    assert (answer.status, dict(answer.headers)) == (429, {b"retry-after": b"2"})
    assert json.loads(answer.body)["error"]["type"] == "rate_limit_error"
