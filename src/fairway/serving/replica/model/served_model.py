"""The served model, requests and answers as the protocols see them."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from fairway.serving.replica.model.datatype import Array
from fairway.serving.replica.request_error import RequestError, bad
from fairway.state.model import ModelSignature, TensorSpec

MOST_ELEMENTS = (1 << 31) - 1
"""Maximum elements of a tensor: more than any body holds, and far from integer overflow."""
MOST_EMPTY_ROWS = 4096
"""Maximum rows without elements, which take no bytes of the body but must still be run."""
_SHOWN = 16

Wanted = tuple[tuple[int, bool], ...]
"""Requested outputs: index in the signature, and whether as raw bytes."""


@dataclass(frozen=True, slots=True)
class ModelAbilities:
    """What a model supports besides prediction."""

    generates: bool = False
    embeds: bool = False
    counts: bool = False
    """Whether it counts tokens."""
    generate_options: frozenset[str] = frozenset()
    """Parameters of OpenAI requests that `generate` supports."""
    embed_options: frozenset[str] = frozenset()
    """The same for `embed`."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model that a replica serves."""

    name: str
    version: str
    platform: str
    signature: ModelSignature
    batches: bool
    """Whether the first dimension is the batch, of any length."""
    labels: tuple[str, ...] = ()
    generates: bool = False
    embeds: bool = False
    counts: bool = False
    """Whether it counts tokens."""
    generate_options: frozenset[str] = frozenset()
    """Parameters of OpenAI requests that `generate` supports."""
    embed_options: frozenset[str] = frozenset()
    """The same for `embed`."""


@dataclass(slots=True)
class InferenceRequest:
    """A parsed request for inference, with arrays in the order of the signature's inputs."""

    inputs: list[Array]
    rows: int
    id: str = ""
    wanted: Wanted = ()
    """The requested outputs; empty if the protocol cannot select outputs, for all of them."""
    columnar: bool = False
    """TF-Serving: whether inputs were given by name, not by row; outputs use the same form."""
    timeout: float = 0.0
    """Seconds after which the client no longer needs an answer; 0: none."""
    classes: tuple[int, ...] = ()
    """For each requested output, how many of the best classes to return instead of the values; 0: the values."""


@dataclass(slots=True)
class ReplicaResponse:
    """An answer to a request."""

    body: bytes
    status: int = 200
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    content_type: bytes = b"application/json"


@dataclass(slots=True)
class StreamingResponse:
    """An answer sent in pieces."""

    pieces: AsyncGenerator[bytes]
    status: int = 200
    content_type: bytes = b"text/event-stream; charset=utf-8"
    headers: tuple[tuple[bytes, bytes], ...] = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))


def named(specs: tuple[TensorSpec, ...], name: str, what: str) -> int:
    """Return the index of a tensor in the signature; raise 400 with the existing names."""
    for index, spec in enumerate(specs):
        if spec.name == name:
            return index
    message = f"the model has no {what} {name!r}"
    raise bad(message, f"it has: {', '.join(spec.name for spec in specs)}")


def check_shape(spec: TensorSpec, shape: tuple[int, ...]) -> None:
    """Raise 400 if the signature does not allow the shape."""
    if len(shape) == len(spec.shape):
        size = 1
        for actual, expected in zip(shape, spec.shape, strict=True):
            if (actual != expected and expected != -1) or not 0 <= actual <= MOST_ELEMENTS:
                break
            size *= actual or 1  # a length of 0 must not hide the other lengths
        else:
            if size <= MOST_ELEMENTS:
                return
    message = f"input {spec.name!r} has shape {shown(shape)}"
    raise bad(message, f"the model takes {list(spec.shape)}, where -1 is any length up to {MOST_ELEMENTS} elements in all")


def shown(shape: tuple[int, ...]) -> str:
    """Format a shape for a message, truncated if it or its numbers are long."""
    lengths = [str(length) if abs(length) < 10**18 else "..." for length in shape[:_SHOWN]]
    return f"[{', '.join(lengths)}{', ...' if len(shape) > _SHOWN else ''}]"


def rows_of(model: ServedModel, shapes: list[tuple[int, ...]]) -> int:
    """Return the number of rows: the first dimension, which must be the same for all inputs; 1 if the model does not batch."""
    if not model.batches:
        return 1
    rows = shapes[0][0]
    for spec, shape in zip(model.signature.inputs, shapes, strict=True):
        if shape[0] != rows:
            message = f"input {spec.name!r} has {shape[0]} rows and {model.signature.inputs[0].name!r} has {rows}"
            raise bad(message, "send the same number of rows for every input")
    if rows > MOST_EMPTY_ROWS and rows > max(math.prod(shape) for shape in shapes):
        message = f"the request has {rows} rows without elements"
        raise bad(message, f"send at most {MOST_EMPTY_ROWS} of these")
    return rows


def listed(model: ServedModel, created: int) -> dict[str, object]:
    """Return the model in the format of OpenAI's list of models."""
    return {"id": model.name, "object": "model", "created": created, "owned_by": "fairway"}


def check_version(model: ServedModel, version: str) -> None:
    """Raise 404 when the version is not the one that is served."""
    if version != model.version:
        message = f"model {model.name!r} has no version {version!r} here"
        raise RequestError(404, message, fix=f"version {model.version} is served")
