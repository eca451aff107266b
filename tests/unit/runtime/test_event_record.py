"""Event files of real writers, and damaged ones."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from fairway.runtime import event_record

RECORDED = Path(__file__).parent / "fixtures" / "tensorboard"
SIMPLE = (RECORDED / "simple-scalars.tfevents").read_bytes()
"""From tensorboardX: `loss` and `train/accuracy` for five steps, a histogram and a text."""
TENSORS = (RECORDED / "tensor-scalars.tfevents").read_bytes()
"""From TensorBoard's own writer, as `tf.summary.scalar` does: `epoch_loss` and `lr` for three steps."""


def decoded(data: bytes) -> list[tuple[int, dict[str, float]]]:
    found = [event_record.scalars(record) for record, _ in event_record.records(data, checked=True)]
    return [(scalars.step, scalars.values) for scalars in found if scalars]


def test_simple_values() -> None:
    found = decoded(SIMPLE)
    assert [(step, pytest.approx(value)) for step, values in found for tag, value in values.items() if tag == "loss"] == [
        (step, 1.0 / (step + 1)) for step in range(5)
    ]
    assert {tag for _, values in found for tag in values} == {"loss", "train/accuracy"}


def test_tensors_of_one_element() -> None:
    assert decoded(TENSORS)[::2] == [(0, {"epoch_loss": 2.0}), (1, {"epoch_loss": 1.5}), (2, {"epoch_loss": 1.0})]


def test_the_time_of_an_event() -> None:
    times = [scalars.time for record, _ in event_record.records(TENSORS) if (scalars := event_record.scalars(record))]
    assert times == [1_700_000_000.0, 1_700_000_000.0, 1_700_000_001.0, 1_700_000_001.0, 1_700_000_002.0, 1_700_000_002.0]


@pytest.mark.parametrize("cut", [1, 11, 12, 30, 87, 153])
def test_a_file_cut_anywhere_gives_its_whole_records(cut: int) -> None:
    ends = [end for _, end in event_record.records(TENSORS)]
    assert [end for _, end in event_record.records(TENSORS[:cut])] == [end for end in ends if end <= cut]


def test_a_wrong_length_is_damage() -> None:
    with pytest.raises(event_record.DamagedEventFileError):
        list(event_record.records(b"\x01" + TENSORS[1:]))


def test_wrong_content_is_damage_when_checked() -> None:
    broken = bytearray(TENSORS)
    broken[100] ^= 1
    assert len(list(event_record.records(bytes(broken)))) == 7
    with pytest.raises(event_record.DamagedEventFileError):
        list(event_record.records(bytes(broken), checked=True))


@pytest.mark.parametrize("record", [b"\x09\x00", b"\x2a\xff", b"\x0f", b"\x80" * 11])
def test_what_is_no_event_is_damage(record: bytes) -> None:
    with pytest.raises(event_record.DamagedEventFileError):
        event_record.scalars(record)


def field(number: int, kind: int, value: bytes) -> bytes:
    return bytes([number << 3 | kind]) + (bytes([len(value)]) + value if kind == 2 else value)


def event_with(tensor: bytes) -> bytes:
    value = field(1, 2, b"x") + field(8, 2, tensor)
    return field(2, 0, b"\x07") + field(5, 2, field(1, 2, value))


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (field(1, 0, b"\x01") + field(5, 2, struct.pack("<f", 0.5)), 0.5),
        (field(1, 0, b"\x01") + field(5, 5, struct.pack("<f", 0.5)), 0.5),
        (field(1, 0, b"\x02") + field(6, 2, struct.pack("<d", 0.1)), 0.1),
        (field(1, 0, b"\x02") + field(4, 2, struct.pack("<d", 0.1)), 0.1),
        (field(1, 0, b"\x03") + field(7, 2, b"\x05"), 5.0),
        (field(1, 0, b"\x09") + field(10, 0, b"\xff" * 9 + b"\x01"), -1.0),
        (field(1, 0, b"\x13") + field(13, 2, b"\x80\x78"), 1.0),
        (field(1, 0, b"\x0e") + field(4, 2, b"\x80\x3f"), 1.0),
        (field(1, 0, b"\x01") + field(2, 2, field(2, 2, field(1, 0, b"\x01"))) + field(5, 2, struct.pack("<f", 2.0)), 2.0),
    ],
)
def test_the_spellings_of_a_scalar_tensor(tensor: bytes, expected: float) -> None:
    assert event_record.scalars(event_with(tensor)) == event_record.EventScalars(0.0, 7, {"x": expected})


def test_a_tensor_with_several_elements_is_no_scalar() -> None:
    shape = field(2, 2, field(2, 2, field(1, 0, b"\x02")))
    assert event_record.scalars(event_with(field(1, 0, b"\x01") + shape + field(4, 2, b"\0" * 8))) is None


def test_a_negative_step() -> None:
    record = field(2, 0, b"\xff" * 9 + b"\x01") + field(
        5, 2, field(1, 2, field(1, 2, b"x") + field(2, 5, struct.pack("<f", 1.0)))
    )
    assert event_record.scalars(record) == event_record.EventScalars(0.0, -1, {"x": 1.0})


def test_the_checksum_is_that_of_the_standard() -> None:
    # CRC-32C of "123456789" is 0xE3069283.
    rotated = ((0xE3069283 >> 15) | (0xE3069283 << 17)) & 0xFFFFFFFF
    assert event_record.masked_checksum(b"123456789") == (rotated + 0xA282EAD8) & 0xFFFFFFFF
