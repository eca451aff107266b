"""The model of a replica as the protocols see it, and what they ask of it."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from fairway.serving.replica.datatypes import Array
from fairway.serving.replica.problem import RequestError, bad
from fairway.state.model import Signature, TensorSpec

MOST_ELEMENTS = (1 << 31) - 1
"""Elements of a tensor: more than any body holds, and far from where numbers overflow."""
MOST_EMPTY_ROWS = 4096
"""Rows that cost no byte of the body and still must be run."""
_SHOWN = 16

Wanted = tuple[tuple[int, bool], ...]
"""Outputs of an answer: place in the signature, and whether as raw bytes."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a model does besides predicting."""

    generates: bool = False
    embeds: bool = False
    counts: bool = False
    """Whether it counts tokens."""
    generate_options: frozenset[str] = frozenset()
    """Parameters of OpenAI's requests that `generate` honours."""
    embed_options: frozenset[str] = frozenset()
    """The same of `embed`."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What one replica serves."""

    name: str
    version: str
    platform: str
    signature: Signature
    batches: bool
    """Whether the first dimension is the batch, of any length."""
    labels: tuple[str, ...] = ()
    generates: bool = False
    embeds: bool = False
    counts: bool = False
    """Whether it counts tokens."""
    generate_options: frozenset[str] = frozenset()
    """Parameters of OpenAI's requests that `generate` honours."""
    embed_options: frozenset[str] = frozenset()
    """The same of `embed`."""


@dataclass(slots=True)
class Question:
    """One request to the model: arrays in the order of the signature's inputs."""

    inputs: list[Array]
    rows: int
    id: str = ""
    wanted: Wanted = ()
    """All that the protocol knows to ask for."""
    columnar: bool = False
    """TF-Serving: whether the inputs came by name, not by row, and the outputs go the same way."""
    timeout: float = 0.0
    """Seconds after which the client wants no answer any more; 0: it waits."""
    classes: tuple[int, ...] = ()
    """For each of the outputs that are wanted, how many of the best classes are told instead of the values; 0: the values."""


@dataclass(slots=True)
class Answer:
    """What goes back."""

    body: bytes
    status: int = 200
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    content_type: bytes = b"application/json"


@dataclass(slots=True)
class Stream:
    """An answer that comes in pieces."""

    pieces: AsyncGenerator[bytes]
    status: int = 200
    content_type: bytes = b"text/event-stream; charset=utf-8"
    headers: tuple[tuple[bytes, bytes], ...] = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))


def named(specs: tuple[TensorSpec, ...], name: str, what: str) -> int:
    """The place of a tensor in the signature; 400 with the names there are."""
    for place, spec in enumerate(specs):
        if spec.name == name:
            return place
    message = f"the model has no {what} {name!r}"
    raise bad(message, f"it has: {', '.join(spec.name for spec in specs)}")


def check_shape(spec: TensorSpec, shape: tuple[int, ...]) -> None:
    """400 unless the shape is one that the signature allows."""
    if len(shape) == len(spec.shape):
        size = 1
        for given, wanted in zip(shape, spec.shape, strict=True):
            if (given != wanted and wanted != -1) or not 0 <= given <= MOST_ELEMENTS:
                break
            size *= given or 1  # a length of 0 must not hide the others
        else:
            if size <= MOST_ELEMENTS:
                return
    message = f"input {spec.name!r} has shape {shown(shape)}"
    raise bad(message, f"the model takes {list(spec.shape)}, where -1 is any length up to {MOST_ELEMENTS} elements in all")


def shown(shape: tuple[int, ...]) -> str:
    """A shape in a message, however long it and its numbers are."""
    lengths = [str(each) if abs(each) < 10**18 else "..." for each in shape[:_SHOWN]]
    return f"[{', '.join(lengths)}{', ...' if len(shape) > _SHOWN else ''}]"


def rows_of(model: ServedModel, shapes: list[tuple[int, ...]]) -> int:
    """How many rows a question has: the first dimension, the same for all inputs. 1 where the model takes no batches."""
    if not model.batches:
        return 1
    rows = shapes[0][0]
    for spec, shape in zip(model.signature.inputs, shapes, strict=True):
        if shape[0] != rows:
            message = f"input {spec.name!r} has {shape[0]} rows and {model.signature.inputs[0].name!r} has {rows}"
            raise bad(message, "send the same number of rows for every input")
    if rows > MOST_EMPTY_ROWS and rows > max(math.prod(shape) for shape in shapes):
        message = f"the request has {rows} rows without elements"
        raise bad(message, f"send {MOST_EMPTY_ROWS} of these at most")
    return rows


def listed(model: ServedModel, created: int) -> dict[str, object]:
    """The model as OpenAI lists it."""
    return {"id": model.name, "object": "model", "created": created, "owned_by": "fairway"}


def check_version(model: ServedModel, version: str) -> None:
    """404 when it is not the one that is served."""
    if version != model.version:
        message = f"model {model.name!r} has no version {version!r} here"
        raise RequestError(404, message, fix=f"version {model.version} is served")
