"""The Open Inference Protocol: requests read or refused, and the answers."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from small_models import DECLARED, served, signature

from fairway.serving.replica.model.datatype import DTYPES, to_raw
from fairway.serving.replica.protocols.json_piece import finish
from fairway.serving.replica.protocols.open_inference import OpenInferenceCodec, metadata
from fairway.serving.replica.request_error import RequestError

FLOATS = served(signature(x=("FP32", [-1, 3]), out_y=("FP32", [-1, 3])))
MIXED = served(
    signature(
        x=("FP32", [-1, 2]), i=("INT8", [-1]), t=("BYTES", [-1, 1]), b=("BOOL", [-1]), out_y=("FP32", [-1]), out_t=("BYTES", [-1])
    )
)


def tensor(name: str, datatype: str, shape: list[int], **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, **more}


def body(*tensors: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": tensors, **more}).encode()


def binary(tensors: list[dict[str, Any]], raws: list[bytes], **more: Any) -> tuple[bytes, bytes]:
    for one, raw in zip(tensors, raws, strict=True):
        one["parameters"] = {"binary_data_size": len(raw)}
    head = body(*tensors, **more)
    return head + b"".join(raws), b"%d" % len(head)


@pytest.mark.parametrize("data", [[1, 2.5, 3, 4, 5, 6], [[1, 2.5, 3], [4, 5, 6]]])
def test_numbers_flat_or_nested(data: list[Any]) -> None:
    question = OpenInferenceCodec(FLOATS).read(body(tensor("x", "FP32", [2, 3], data=data)), None)
    assert question.inputs[0].tolist() == [[1.0, 2.5, 3.0], [4.0, 5.0, 6.0]]
    assert question.inputs[0].dtype == np.float32
    assert (question.rows, question.wanted) == (2, ((0, False),))


def test_a_number_too_large_for_a_float_is_infinite() -> None:
    question = OpenInferenceCodec(FLOATS).read(body(tensor("x", "FP32", [1, 3], data=[1e300, -1e300, 0])), None)
    assert question.inputs[0].tolist() == [[math.inf, -math.inf, 0.0]]


def mixed(**changed: Any) -> list[dict[str, Any]]:
    tensors = {
        "x": tensor("x", "FP32", [2, 2], data=[1, 2, 3, 4]),
        "i": tensor("i", "INT8", [2], data=[-128, 127]),
        "t": tensor("t", "BYTES", [2, 1], data=["ä", ""]),
        "b": tensor("b", "BOOL", [2], data=[True, False]),
    }
    for name, change in changed.items():
        tensors[name] = {**tensors[name], **change}
    return list(tensors.values())


def test_every_kind_of_input_in_any_order() -> None:
    question = OpenInferenceCodec(MIXED).read(body(*reversed(mixed()), id="q1", outputs=[{"name": "t"}]), None)
    assert [each.tolist() for each in question.inputs] == [[[1, 2], [3, 4]], [-128, 127], [["ä".encode()], [b""]], [True, False]]
    assert (question.id, question.wanted) == ("q1", ((1, False),))


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (mixed(i={"data": [1, 128]}), "128"),
        (mixed(i={"data": [1, 2.5]}), "Expected `int`"),
        (mixed(i={"data": [1, True]}), "Expected `int`"),
        (mixed(i={"data": [1]}), "1 elements"),
        (mixed(b={"data": [1, 0]}), "Expected `bool`"),
        (mixed(t={"data": [1, 2]}), "Expected `str`"),
        (mixed(x={"data": ["1", "2", "3", "4"]}), "Expected `float`"),
        (mixed(x={"data": [[1, 2], [3]]}), "a list of 1 in dimension 1"),
        (mixed(x={"data": [[[1, 2], [3, 4]]]}), "neither flat nor nested"),
        (mixed(x={"data": [None] * 4}), "Expected `float`"),
        (mixed(x={"data": "1234"}), "Expected `array`"),
        (mixed(x={"shape": [2, 3]}), r"shape \[2, 3\]"),
        (mixed(x={"shape": [2]}), r"shape \[2\]"),
        (mixed(x={"shape": [-2, 2]}), r"shape \[-2, 2\]"),
        (mixed(x={"shape": [3, 2], "data": [0] * 6}), "has 3"),
        (mixed(x={"shape": [0, 2], "data": []}), "rows"),
        (mixed(x={"shape": [10**30, 2]}), "elements"),
        (mixed(x={"shape": ["2", 2]}), "Expected `int`"),
        (mixed(x={"datatype": "FP64"}), "takes FP32"),
        (mixed(x={"datatype": "FLOAT"}), "takes FP32"),
        (mixed(x={"name": "z"}), r"no input 'z'\n.*it has: x, i, t, b"),
        (mixed(x={"name": "i", "datatype": "INT8", "shape": [2], "data": [1, 2]}), "lacks the input 'x'"),
        (mixed()[1:], "lacks the input 'x'"),
        ([*mixed(), mixed()[0]], "twice"),
        (mixed(x={"parameters": {"binary_data_size": 16}}), "both data and binary_data_size"),
    ],
)
def test_what_is_wrong_is_said(tensors: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        OpenInferenceCodec(MIXED).read(body(*tensors), None)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"inputs": 3}',
        b'{"inputs": [{}]}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"inputs": []}',
        b'{"id": 1}',
    ],
)
def test_what_is_no_request_is_refused(data: bytes) -> None:
    for model in (FLOATS, MIXED):
        with pytest.raises(RequestError) as caught:
            OpenInferenceCodec(model).read(data, None)
        assert caught.value.status == 400


def test_an_output_that_is_not_there() -> None:
    with pytest.raises(RequestError, match=r"no output 'z'\n.*it has: y, t"):
        OpenInferenceCodec(MIXED).read(body(*mixed(), outputs=[{"name": "z"}]), None)
    with pytest.raises(RequestError, match="classification is -3"):
        OpenInferenceCodec(MIXED).read(body(*mixed(), outputs=[{"name": "y", "parameters": {"classification": -3}}]), None)


def test_binary_tensors_both_ways() -> None:
    values = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    protocol = OpenInferenceCodec(FLOATS)
    for _ in range(2):  # the second time its head is cached
        whole, length = binary([tensor("x", "FP32", [2, 3])], [values.tobytes()], parameters={"binary_data_output": True})
        question = protocol.read(whole, length)
        assert question.inputs[0].tolist() == values.tolist()
        answer = protocol.write(question, [values])
        size = int(dict(answer.headers)[b"inference-header-content-length"])
        data = json.loads(answer.body[:size])
        assert data["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [2, 3], "parameters": {"binary_data_size": 24}}]
        assert answer.body[size:] == values.tobytes()


def test_json_and_binary_in_one_request() -> None:
    tensors = mixed()
    texts = to_raw("BYTES", np.array([[b"one"], [b"two"]], object))
    tensors[2] = tensor("t", "BYTES", [2, 1], parameters={"binary_data_size": len(texts)})
    head = body(*tensors, outputs=[{"name": "t", "parameters": {"binary_data": True}}, {"name": "y"}])
    protocol = OpenInferenceCodec(MIXED)
    question = protocol.read(head + texts, b"%d" % len(head))
    assert question.inputs[2].tolist() == [[b"one"], [b"two"]]
    answer = protocol.write(question, [np.array([1, 2], np.float32), np.array([b"a", b"bc"], object)])
    size = int(dict(answer.headers)[b"inference-header-content-length"])
    assert [output["name"] for output in json.loads(answer.body[:size])["outputs"]] == ["t", "y"]
    assert answer.body[size:] == b"\1\0\0\0a\2\0\0\0bc"


@pytest.mark.parametrize("length", [b"-1", b"+5", b"1e3", b"", b"0x10", b"99999", b"9" * 5000, b" 5", "٣".encode()])
def test_a_length_of_the_head_that_is_none(length: bytes) -> None:
    with pytest.raises(RequestError, match="Inference-Header-Content-Length"):
        OpenInferenceCodec(FLOATS).read(body(tensor("x", "FP32", [1, 3], data=[1, 2, 3])), length)


@pytest.mark.parametrize(
    ("size", "raw", "words"),
    [
        (12, b"\0" * 11, "11 bytes follow"),
        (12, b"\0" * 13, "13 bytes follow"),
        (11, b"\0" * 11, "should be 12"),
        (-1, b"", "not a number of bytes"),
        (True, b"\0", "not a number of bytes"),
        ("12", b"\0" * 12, "not a number of bytes"),
        (10**40, b"\0" * 12, "should be 12"),
    ],
)
def test_sizes_that_do_not_fit(size: Any, raw: bytes, words: str) -> None:
    head = body(tensor("x", "FP32", [1, 3], parameters={"binary_data_size": size}))
    with pytest.raises(RequestError, match=words):
        OpenInferenceCodec(FLOATS).read(head + raw, b"%d" % len(head))


def test_an_answer_in_json() -> None:
    protocol = OpenInferenceCodec(MIXED)
    question = protocol.read(body(*mixed(), id="9"), None)
    answer = protocol.write(question, [np.array([0.5, np.nan], np.float32), np.array([b"a", "ä".encode()], object)])
    assert json.loads(answer.body) == {
        "model_name": "m",
        "model_version": "7",
        "id": "9",
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [2], "data": [0.5, None]},
            {"name": "t", "datatype": "BYTES", "shape": [2], "data": ["a", "ä"]},
        ],
    }
    with pytest.raises(RequestError, match="request it as binary data"):
        protocol.write(question, [np.array([0.5, 1], np.float32), np.array([b"a", b"\xff"], object)])


def test_the_model_says_what_it_takes() -> None:
    told = metadata(FLOATS, DECLARED)
    assert told["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    assert (told["versions"], told["platform"]) == (["7"], "told")
    assert told["parameters"] == {"batching": "batched (declared): by the test"}


JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=8),
    lambda inner: (
        some.lists(inner, max_size=4) | some.dictionaries(some.sampled_from(["name", "shape", "data", "datatype"]), inner)
    ),
    max_leaves=12,
)
TENSOR = some.fixed_dictionaries(
    {
        "name": some.sampled_from(["x", "i", "t", "b", "z"]) | JSON,
        "shape": some.lists(some.integers(-1, 3), max_size=3) | JSON,
        "datatype": some.sampled_from([*DTYPES, "FLOAT"]) | JSON,
    },
    optional={"data": JSON, "parameters": some.dictionaries(some.just("binary_data_size"), JSON)},
)


@given(
    some.lists(TENSOR, max_size=5), some.binary(max_size=30), some.none() | some.integers(-2, 400) | some.binary(max_size=6), JSON
)
def test_whatever_comes_is_read_or_refused(tensors: list[Any], tail: bytes, length: Any, outputs: Any) -> None:
    sent = json.dumps({"inputs": tensors, **({"outputs": outputs} if outputs else {})}).encode()
    given_length = length if length is None or isinstance(length, bytes) else str(length or len(sent)).encode()
    for model in (FLOATS, MIXED):
        with suppress(RequestError):
            question = OpenInferenceCodec(model).read(sent + tail, given_length)
            assert len(question.inputs) == len(model.signature.inputs)


@given(some.binary(max_size=300), some.none() | some.binary(max_size=4))
def test_any_bytes_at_all_are_refused(data: bytes, length: bytes | None) -> None:
    with pytest.raises(RequestError):
        OpenInferenceCodec(FLOATS).read(data, length)


@given(some.data())
def test_what_was_sent_arrives(data: Any) -> None:
    word = data.draw(some.sampled_from([each for each in DTYPES if each not in ("BYTES", "BF16")]))
    model = served(signature(x=(word, [-1, 2]), out_y=(word, [-1, 2])))
    dtype = DTYPES[word]
    rows = data.draw(some.integers(1, 4))
    size = rows * 2 * dtype.itemsize
    values = np.frombuffer(data.draw(some.binary(min_size=size, max_size=size)), "u1" if word == "BOOL" else dtype).reshape(
        rows, 2
    )
    if word == "BOOL":
        values = values % 2 == 1
    protocol = OpenInferenceCodec(model)
    whole, length = binary([tensor("x", word, [rows, 2])], [values.tobytes()])
    np.testing.assert_array_equal(protocol.read(whole, length).inputs[0], values)
    if not (dtype.kind == "f" and not np.isfinite(values).all()):
        question = protocol.read(body(tensor("x", word, [rows, 2], data=values.ravel().tolist())), None)
        np.testing.assert_array_equal(question.inputs[0], values)
        back = json.loads(protocol.write(question, [values]).body)["outputs"][0]["data"]
        np.testing.assert_array_equal(np.array(back, dtype).reshape(rows, 2), values)


DATA = {"data": [1, 2, 3]}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (body(tensor("x", "FP32", [1, 3], **DATA, parameters={"own": 1})), "'own', which the model does not take"),
        (body(tensor("x", "FP32", [1, 3], **DATA, parameters={"shared_memory_region": "r"})), "shared memory"),
        (body(tensor("x", "FP32", [1, 3], **DATA, parameter={})), "parameter"),
        (body(tensor("x", "FP32", [1, 3], **DATA), output=[{"name": "y"}]), "output"),
        (body(tensor("x", "FP32", [1, 3], **DATA), outputs=[{"name": "y", "shape": [3]}]), "shape"),
    ],
)
def test_what_is_not_known_is_refused_and_named(asked: bytes, words: str) -> None:
    form = OpenInferenceCodec(FLOATS)
    for read in (form.read, lambda body, length: finish(form.steps(body, length))):
        with pytest.raises(RequestError, match=words):
            read(asked, None)


def test_names_of_the_model_in_the_body_are_those_that_clients_send() -> None:
    asked = body(tensor("x", "FP32", [1, 3], **DATA, parameters={}), model_name="m", model_version=None, id="1")
    assert OpenInferenceCodec(FLOATS).read(asked, None).id == "1"
    assert finish(OpenInferenceCodec(FLOATS).steps(asked, None)).id == "1"
