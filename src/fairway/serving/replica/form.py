"""How questions are put to the model, and by whom: what protocols and connections offer to the application."""

from __future__ import annotations

from typing import Protocol

from fairway.serving.replica.datatypes import Array
from fairway.serving.replica.model import Answer, Question
from fairway.serving.replica.protocols.pieces import Steps
from fairway.serving.replica.request_id import Headers


class Form(Protocol):
    """One way to put a question to the model: from a body to arrays, and from arrays to an answer."""

    def read(self, body: bytes, head_length: bytes | None) -> Question:
        """A question, or a `RequestError`."""
        ...

    def steps(self, body: bytes, head_length: bytes | None) -> Steps[Question]:
        """The same of large JSON, in steps."""
        ...

    def write(self, question: Question, outputs: list[Array]) -> Answer:
        """Its answer."""
        ...


class Asker(Protocol):
    """Who asked, and waits on the short way (`lane.py`)."""

    began: float
    phases: tuple[float, float]
    """When the whole request was there, and when it was read."""
    head_length: bytes | None
    disconnected: bool

    @property
    def headers(self) -> Headers:
        """The lines of its head, with names in lower case."""
        ...

    def hold(self, count: int) -> None:
        """Counts so many bytes more until it is answered."""
        ...

    def answer(self, answer: Answer) -> None:
        """Takes the answer, once."""
        ...
