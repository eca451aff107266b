"""The datatypes of the Open Inference Protocol, in memory and on the wire.

BYTES is kept as an object array of `bytes`, and BF16, which numpy lacks, as FP32. All others have the equivalent numpy type.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway.serving.replica.request_error import bad

Array = NDArray[Any]

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BF16": np.dtype("<f4"),
    "BYTES": np.dtype(object),
}
_WORDS = {dtype: word for word, dtype in DTYPES.items() if word not in ("BF16", "BYTES")}
_LENGTH = struct.Struct("<I")


def word_of(dtype: np.dtype[Any]) -> str:
    """Return the protocol's datatype for an array's type; text and objects are BYTES."""
    if dtype.kind in "OSU":
        return "BYTES"
    word = _WORDS.get(dtype.newbyteorder("<") if dtype.byteorder == ">" else dtype)
    if word is None:
        message = f"arrays of {dtype} have no datatype in the protocol"
        raise ValueError(message)
    return word


def from_raw(word: str, raw: memoryview, count: int, place: str) -> Array:
    """Decode `count` elements from the wire as a flat array. The array may share memory with `raw`."""
    if word == "BYTES":
        return _texts_from(raw, count, place)
    size = 2 if word == "BF16" else DTYPES[word].itemsize
    if len(raw) != size * count:
        message = f"{place}: {len(raw)} bytes for {count} elements of {word}"
        raise bad(message, f"send {size * count} bytes")
    if word == "BF16":
        bits: Array = np.frombuffer(raw, "<u2").astype("<u4") << 16
        return bits.view("<f4")
    if word == "BOOL":
        truths: Array = np.frombuffer(raw, "u1") != 0  # bytes other than 0 and 1 would give invalid bools
        return truths
    return np.frombuffer(raw, DTYPES[word])


def to_raw(word: str, array: Array) -> bytes:
    """Encode an array for the wire."""
    if word == "BYTES":
        texts = [as_bytes(element) for element in array.ravel().tolist()]
        return b"".join(part for text in texts for part in (_LENGTH.pack(len(text)), text))
    if word == "BF16":
        bits = np.ascontiguousarray(array, "<f4").view("<u4")
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return np.where(np.isnan(array), 0x7FC0, nearest).astype("<u2").tobytes()
    return array.astype(DTYPES[word], copy=False).tobytes()


def as_bytes(element: object) -> bytes:
    """Return an element of a BYTES tensor as bytes."""
    return element if isinstance(element, bytes) else str(element).encode()


def of_texts(texts: list[bytes]) -> Array:
    """Return a flat BYTES tensor of these elements."""
    array = np.empty(len(texts), object)
    array[:] = texts
    return array


def _texts_from(raw: memoryview, count: int, place: str) -> Array:
    texts: list[bytes] = []
    offset, end = 0, len(raw)
    while offset < end:
        if offset + 4 > end:
            message = f"{place}: the length of element {len(texts)} is cut short, {end - offset} of 4 bytes"
            raise bad(message)
        (size,) = _LENGTH.unpack_from(raw, offset)
        offset += 4
        if offset + size > end:
            message = f"{place}: element {len(texts)} should have {size} bytes and {end - offset} are left"
            raise bad(message)
        texts.append(bytes(raw[offset : offset + size]))
        offset += size
    if len(texts) != count:
        message = f"{place}: {len(texts)} elements of BYTES where the shape has {count}"
        raise bad(message)
    return of_texts(texts)
