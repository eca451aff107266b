"""JSON that does not match the protocol is refused, whatever type was expected."""

from __future__ import annotations

import msgspec
import pytest

from fairway.serving.replica.protocols.json_tensor import read_json
from fairway.serving.replica.request_error import RequestError


class Encoded(msgspec.Struct, forbid_unknown_fields=True):
    b64: str


def test_an_unknown_member_names_the_known_ones() -> None:
    with pytest.raises(RequestError) as refused:
        read_json(msgspec.json.Decoder(Encoded), b'{"a": 1}')
    assert refused.value.status == 400
    assert "b64" in str(refused.value.fix)


def test_an_unknown_member_where_text_is_possible_too_is_refused() -> None:
    with pytest.raises(RequestError) as refused:
        read_json(msgspec.json.Decoder(str | Encoded), b'{"a": 1}')
    assert refused.value.status == 400
    assert "unknown field `a`" in str(refused.value)
