"""The interfaces that protocols and connections implement for the application."""

from __future__ import annotations

from typing import Protocol

from fairway.serving.replica.model.datatype import Array
from fairway.serving.replica.model.served_model import InferenceRequest, ReplicaResponse
from fairway.serving.replica.protocols.json_piece import Steps
from fairway.serving.replica.request_id import Headers


class InferenceCodec(Protocol):
    """A protocol for inference: parses bodies to arrays, and writes arrays as answers."""

    def read(self, body: bytes, head_length: bytes | None) -> InferenceRequest:
        """Parse a request; raise `RequestError` when it is invalid."""
        ...

    def steps(self, body: bytes, head_length: bytes | None) -> Steps[InferenceRequest]:
        """Parse large JSON in steps."""
        ...

    def write(self, question: InferenceRequest, outputs: list[Array]) -> ReplicaResponse:
        """Write the answer."""
        ...


class PendingRequest(Protocol):
    """A client that waits for its answer on the fast path (`fast_path.py`)."""

    began: float
    phases: tuple[float, float]
    """When the whole request had arrived, and when it was parsed."""
    head_length: bytes | None
    disconnected: bool

    @property
    def headers(self) -> Headers:
        """The headers of the request, with names in lower case."""
        ...

    def hold(self, count: int) -> None:
        """Count additional bytes until the request is answered."""
        ...

    def answer(self, answer: ReplicaResponse) -> None:
        """Send the answer; called once."""
        ...
