"""Builders of small model files, without the frameworks that define the formats."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence

Tensor = tuple[str, int, Sequence[int | str]]
"""Name, the format's type number, and shape; a string is a named dimension."""


def varint(value: int) -> bytes:
    """Encode an integer as a protocol buffers varint."""
    value &= (1 << 64) - 1
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def field(number: int, value: int | str | bytes) -> bytes:
    """Encode one field of a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def onnx_file(
    inputs: Sequence[Tensor] = (("x", 1, ("batch", 4)),),
    outputs: Sequence[Tensor] = (("y", 1, ("batch", 2)),),
    *,
    weights: Sequence[str] = (),
    external: Sequence[str] = (),
    within: bytes = b"",
) -> bytes:
    """Return an ONNX model with these tensors; `external` are files with weights, `within` is the graph of a nested node."""
    graph = b"".join(field(11, _onnx_info(tensor)) for tensor in inputs) + b"".join(
        field(12, _onnx_info(tensor)) for tensor in outputs
    )
    graph += b"".join(field(5, field(8, name) + field(9, b"\0" * 8)) for name in weights)
    graph += b"".join(field(5, field(8, "w") + field(13, field(1, "location") + field(2, path))) for path in external)
    if within:
        graph += field(1, field(5, field(1, "body") + field(6, within)))
    return field(1, 8) + field(7, graph)


def onnx_graph(model: bytes) -> bytes:
    """Return the graph of a model from `onnx_file`, for use as `within` of another."""
    head = field(1, 8) + varint(7 << 3 | 2)
    rest = model[len(head) :]
    while rest[0] & 0x80:
        rest = rest[1:]
    return rest[1:]


def savedmodel_file(inputs: Sequence[Tensor], outputs: Sequence[Tensor], name: str = "serving_default") -> bytes:
    """Return a `saved_model.pb` with one signature."""
    content = b"".join(field(1, _entry(tensor[0], _tensorflow_info(tensor))) for tensor in inputs)
    content += b"".join(field(2, _entry(tensor[0], _tensorflow_info(tensor))) for tensor in outputs)
    graph = field(5, _entry("__saved_model_init_op", b"")) + field(5, _entry(name, content))
    return field(1, 1) + field(2, graph)


def archive(members: Mapping[str, bytes]) -> bytes:
    """Return a zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def exported_file() -> bytes:
    """Return the outline of a file from `torch.export.save`."""
    return archive({"m/archive_format": b"pt2", "m/models/model.json": b"{}", "m/data/sample_inputs/model.pt": b"PK"})


def pickled_file() -> bytes:
    """Return the outline of a file from `torch.save`."""
    return archive({"m/data.pkl": b"\x80\x02}q\x00.", "m/version": b"3"})


def _onnx_info(tensor: Tensor) -> bytes:
    name, kind, shape = tensor
    dimensions = b"".join(field(1, field(1, size) if isinstance(size, int) else field(2, size)) for size in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dimensions)))


def _tensorflow_info(tensor: Tensor) -> bytes:
    _, kind, shape = tensor
    dimensions = b"".join(field(2, field(1, size) if isinstance(size, int) else field(1, -1)) for size in shape)
    return field(1, "t:0") + field(2, kind) + field(3, dimensions)


def _entry(key: str, value: bytes) -> bytes:
    return field(1, key) + field(2, value)
