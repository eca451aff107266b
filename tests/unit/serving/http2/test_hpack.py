"""Header compression compared with another implementation, and hostile blocks."""

from __future__ import annotations

import hpack as other
import hpack.table
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.serving.http2.hpack import STATIC, TABLE_SIZE, HpackDecoder, TooManyHeadersError, encode
from fairway.serving.http2.http2_error import HeaderCompressionError

NAMES = st.sampled_from([b":path", b":method", b"content-type", b"grpc-timeout", b"x-a", b"x-" + b"b" * 300])
VALUES = st.one_of(st.binary(max_size=40), st.sampled_from([b"POST", b"/a.B/C", b"application/grpc", b"v" * 5000]))
LISTS = st.lists(st.tuples(NAMES, VALUES), max_size=8)


@settings(max_examples=200, deadline=None)
@given(st.lists(LISTS, min_size=1, max_size=12), st.booleans())
def test_what_another_encoder_writes_is_read(blocks, huffman: bool) -> None:
    theirs, ours = other.Encoder(), HpackDecoder(1 << 20, 1000)
    for number, headers in enumerate(blocks):
        if number == 3:
            theirs.header_table_size = 100
        assert ours.decode(theirs.encode(headers, huffman=huffman)) == tuple(headers)


@settings(max_examples=100, deadline=None)
@given(LISTS)
def test_another_decoder_reads_what_is_written(headers) -> None:
    found = other.Decoder(max_header_list_size=1 << 20).decode(encode(headers), raw=True)
    assert [(bytes(name), bytes(value)) for name, value in found] == headers


def test_the_static_table_is_that_of_the_standard() -> None:
    assert list(STATIC) == [(bytes(name), bytes(value)) for name, value in hpack.table.HeaderTable.STATIC_TABLE]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=6))
def test_any_bytes_are_read_or_refused(blocks) -> None:
    decoder = HpackDecoder(1000, 20)
    for block in blocks:
        try:
            decoder.decode(block)
        except (HeaderCompressionError, TooManyHeadersError):
            pass


def test_a_block_that_repeats_a_large_entry_is_refused_and_keeps_nothing() -> None:
    decoder = HpackDecoder(32 * 1024, 128)
    decoder.decode(b"\x40\x01a" + b"\x7f\xa1\x1e" + b"v" * 4000)  # one entry of about 4,000 bytes
    with pytest.raises(TooManyHeadersError):
        decoder.decode(b"\xbe" * 16_000)  # 64 MB, if they were kept
    assert decoder.decode(b"\x82") == ((b":method", b"GET"),)


def test_the_table_stays_within_its_size() -> None:
    decoder = HpackDecoder(1 << 20, 1000)
    for number in range(500):
        decoder.decode(b"\x40\x02" + number.to_bytes(2, "big") + b"\x7f\x80\x01" + b"v" * 255)
    assert sum(len(name) + len(value) + 32 for name, value in decoder._table) <= TABLE_SIZE


def test_a_remembered_block_is_read_anew_when_the_table_has_changed() -> None:
    decoder = HpackDecoder(1000, 20)
    decoder.decode(b"\x40\x01a\x01b")
    assert decoder.decode(b"\xbe") == decoder.decode(b"\xbe") == ((b"a", b"b"),)
    decoder.decode(b"\x40\x01c\x01d")
    assert decoder.decode(b"\xbe") == ((b"c", b"d"),)


@pytest.mark.parametrize(
    "block",
    [b"\x80", b"\xbe", b"\xff\xff\xff\xff\xff\x7f", b"\x3f\xe2\x1f", b"\x00", b"\x00\x05ab", b"\x00\x81\x00\x00", b"\x82\x20"],
    ids=["index 0", "no entry", "integer", "table", "ends", "text ends", "padding", "late size"],
)
def test_what_is_wrong_is_refused(block: bytes) -> None:
    with pytest.raises(HeaderCompressionError):
        HpackDecoder(1000, 20).decode(block)
