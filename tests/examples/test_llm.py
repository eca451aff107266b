"""A language model behind a service: llama.cpp's own server from the package index, and OpenAI's own client."""

from __future__ import annotations

import json
import shutil
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from gang import EXAMPLES, call, wait_until

LAST = 500
"""The example's model counts to this number, and starts again."""
LONG = 6000
"""A number of words that takes it seconds."""


def counted(words: int) -> str:
    """Return the text that the model generates."""
    return "".join(f" {place % LAST + 1}" for place in range(words))


def applied(home: Path, python: str, folder: Path) -> dict[str, Any]:
    """Apply the example's service with an interpreter that has the server installed; return the service, once it is ready."""
    shutil.copytree(EXAMPLES / "21-llm", folder)
    document = folder / "service.yaml"
    text = document.read_text()
    asked = "{requirements: requirements.txt}"
    assert asked in text
    document.write_text(text.replace(asked, f"{{python: {python}}}"))
    code, output = call(home, "apply", "-f", str(document))
    assert code == 0, output
    wait_until(lambda: known(home)["ready_replicas"] == 1)
    return known(home)


def known(home: Path) -> dict[str, Any]:
    code, output = call(home, "get", "service/counter", "-o", "json")
    assert code == 0, output
    found: dict[str, Any] = json.loads(output)
    return found


class Reader:
    """Reads one streamed response on a thread of its own."""

    def __init__(self, client: openai.OpenAI, words: int) -> None:
        self.pieces: list[str] = []
        self.reason: str | None = None
        self.begun = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(client, words), daemon=True)
        self._thread.start()

    def _read(self, client: openai.OpenAI, words: int) -> None:
        asked = [{"role": "user", "content": "count"}]
        stream = client.chat.completions.create(
            model="counter",
            messages=asked,
            max_tokens=words,
            temperature=0,
            stream=True,  # type: ignore[arg-type,call-overload]
        )
        for chunk in stream:
            self.reason = chunk.choices[0].finish_reason or self.reason
            if piece := chunk.choices[0].delta.content:
                self.pieces.append(piece)
                self.begun.set()

    @property
    def reading(self) -> bool:
        return self._thread.is_alive()

    def whole(self) -> tuple[list[str], str | None]:
        """Return all pieces and the finish reason, once the response has ended."""
        self._thread.join(90)
        assert not self.reading
        return self.pieces, self.reason


@pytest.fixture
def client(home: Path, python: str, tmp_path: Path) -> Iterator[openai.OpenAI]:
    url = applied(home, python, tmp_path / "llm")["url"]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client
    call(home, "delete", "service/counter")


@pytest.mark.framework("llm")
@pytest.mark.timeout(240)
def test_a_language_model_answers_streams_scales_and_goes_without_cutting_anybody_short(
    home: Path, client: openai.OpenAI
) -> None:
    asked = [{"role": "user", "content": "count"}]

    assert [model.id for model in client.models.list()] == ["counter"]
    answer = client.chat.completions.create(model="counter", messages=asked, max_tokens=7, temperature=0)  # type: ignore[arg-type]
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (counted(7), "length")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 7

    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="counter", prompt="too long " * 4000, max_tokens=1)
    assert refused.value.type == "exceed_context_size_error"
    assert "exceeds the available context size" in refused.value.message

    assert call(home, "scale", "service/counter", "2")[0] == 0
    wait_until(lambda: known(home)["ready_replicas"] == 2)
    addresses = [replica["address"] for replica in known(home)["replicas"]]
    readers = [Reader(client, LONG) for _ in range(2)]
    for reader in readers:
        assert reader.begun.wait(30)
    assert all(reader.reading and len(reader.pieces) < LONG for reader in readers), "pieces come as they are written"
    assert [busy(address) for address in addresses] == [1, 1], "each replica writes one answer"

    deleting = threading.Thread(target=call, args=(home, "delete", "service/counter"), kwargs={"timeout": 120})
    deleting.start()
    wait_until(lambda: {replica["phase"] for replica in known(home)["replicas"]} == {"Draining"})
    assert all(reader.reading for reader in readers), "the service goes while answers are written"
    for reader in readers:
        pieces, reason = reader.whole()
        assert (len(pieces), "".join(pieces), reason) == (LONG, counted(LONG), "length")
    deleting.join(60)
    assert not deleting.is_alive()
    assert call(home, "get", "service/counter")[0] != 0, "it is gone with the last answer"


def busy(address: str) -> int:
    """Return how many responses llama.cpp generates now, requested without the router."""
    with urllib.request.urlopen(f"http://{address}/slots", timeout=30) as answer:
        return sum(slot["is_processing"] for slot in json.load(answer))
