"""The peak memory of decoding JSON: the estimates used for accounting, compared with measurements."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from small_models import served, signature

from fairway.serving.replica.model.served_model import ServedModel
from fairway.serving.replica.protocols import openai
from fairway.serving.replica.protocols.json_piece import FRAME_WORTH, LARGE, PIECE, WORTH, finish
from fairway.serving.replica.protocols.open_inference import OpenInferenceCodec
from fairway.serving.replica.protocols.tfserving import TfClassifyCodec, TfPredictCodec
from fairway.serving.replica.request_error import RequestError

ONE = served(signature(x=("FP32", [-1, -1]), out_y=("FP32", [-1, 3])))
WHOLE = served(signature(x=("INT64", [-1]), out_y=("FP32", [-1, 3])))
TEXT = served(signature(t=("BYTES", [-1]), out_y=("FP32", [-1, 3])))
TEXTS = served(signature(t=("BYTES", [-1, -1]), out_y=("FP32", [-1, 3])))
TWO = served(signature(a=("INT32", [-1]), t=("BYTES", [-1]), out_y=("FP32", [-1, 3])))
MODELS = {"one": ONE, "whole": WHOLE, "text": TEXT, "texts": TEXTS, "two": TWO}


def test_a_context_is_not_multiplied_without_bound() -> None:
    """A shared feature is repeated for each example: a small body must not become a large array."""
    form = TfClassifyCodec(served(signature(x=("FP32", [-1, -1]), out_y=("FP32", [-1, 3]))))
    body = json.dumps({"context": {"x": [0] * 10_000}, "examples": [{}] * 5_000}).encode()
    for read in (lambda: form.read(body, None), lambda: finish(form.steps(body, None))):
        with pytest.raises(RequestError, match="context of 30007 bytes") as raised:
            read()
        assert raised.value.status == 413
    many = json.dumps({"context": {f"f{at}": 0 for at in range(1000)}, "examples": [{}] * 5_000}).encode()
    with pytest.raises(RequestError, match="no input 'f0'"):
        form.read(many, None)


def attempt(read: Any, *arguments: Any) -> None:
    with suppress(RequestError):
        read(*arguments)


def peak(work: Any) -> int:
    """Return the peak memory in bytes, above that at the beginning."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def filled(element: bytes, size: int) -> bytes:
    return b",".join([element] * (size // (len(element) + 1)))


WORST = [b"0", b"0.5", b"999", b"1e9", b'""', b'"ab"', '"\u00e9"'.encode(), '"\u00e9a"'.encode(), b"[]", b"[0]", b"[[]]",
         b"[999]", b"{}", b'{"":0}', b'{"a":{}}', b'["ab"]', b'{"b64":""}', b'[{"":[]}]', b"null", b'{"x":[]}', b'{"t":"ab"}',
         b'{"a":999,"t":"ab"}']  # fmt: skip


@pytest.mark.parametrize("element", WORST)
@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_memory_of_one_piece(name: str, element: bytes) -> None:
    """`WORTH` is at least the memory that decoding any body at once needs."""
    model = MODELS[name]
    spec = model.signature.inputs[0]
    text = filled(element, LARGE - 200)
    head = '{"inputs":[{"name":"%s","datatype":"%s","shape":%s,"data":['
    bodies = {
        OpenInferenceCodec(model): (head % (spec.name, spec.datatype, [1] * len(spec.shape))).encode() + text + b"]}]}",
        TfPredictCodec(model): b'{"instances":[' + text + b"]}",
        TfClassifyCodec(model): b'{"examples":[' + text + b"]}",
    }
    for form, body in bodies.items():
        attempt(form.read, body[:200], None)
        used = peak(lambda form=form, body=body: attempt(form.read, body, None)) / len(body)
        assert used < WORTH, f"{type(form).__name__}: {used:.1f}"


def test_the_memory_of_requests_of_texts() -> None:
    model = served(signature(), generates=True)
    for body in (
        b'{"model":"m","prompt":[' + filled(b'"ab"', 60_000) + b"]}",
        b'{"model":"m","messages":[' + filled(b'{"role":"a","content":"ab"}', 100_000) + b"]}",
        b'{"model":"m","messages":[{"role":"a","content":[' + filled(b'{"type":"text"}', 100_000) + b"]}]}",
        b'{"model":"m","stream_options":{"a":[' + filled(b'{"":0}', 60_000) + b'],"prompt":"a"}}',
    ):
        for read in (openai.read_completion, openai.read_chat):
            assert peak(lambda read=read, body=body: attempt(read, body, model)) < WORTH * len(body)


SIZE = 1 << 18


def large_bodies(model: ServedModel) -> Iterator[tuple[Any, bytes]]:
    spec = model.signature.inputs[0]
    for element in WORST:
        text = filled(element, SIZE)
        count = text.count(element + b",") + 1 if element.isdigit() else 1
        shape = [count, 1][: len(spec.shape)]
        head = f'{{"inputs":[{{"name":"{spec.name}","datatype":"{spec.datatype}","shape":{shape},"data":['
        yield OpenInferenceCodec(model), head.encode() + text + b"]}]}"
        yield OpenInferenceCodec(model), head.encode() + b"[" + text + b"]]}]}"
        yield TfPredictCodec(model), b'{"instances":[' + text + b"]}"
        yield TfPredictCodec(model), b'{"instances":[[' + text + b"]]}"
        yield TfPredictCodec(model), b'{"inputs":{"x":[' + text + b"]}}"
        yield TfClassifyCodec(model), b'{"examples":[' + text + b"]}"
        yield OpenInferenceCodec(model), b'{"inputs":[],"parameters":{"a":[' + text + b"]}}"
        yield OpenInferenceCodec(model), b'{"inputs":[],"outputs":[' + text + b"]}"
    inputs = filled(b'{"name":"","shape":0,"datatype":""}', SIZE)
    yield OpenInferenceCodec(model), b'{"inputs":[' + inputs + b"]}"
    keys = b",".join(b'"%d":0' % number for number in range(SIZE // 10))
    yield OpenInferenceCodec(model), b'{"inputs":[],"parameters":{' + keys + b"}}"
    yield TfPredictCodec(model), b'{"inputs":{' + keys + b"}}"


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_memory_of_a_large_body_is_what_its_steps_say(name: str) -> None:
    for form, body in large_bodies(MODELS[name]):
        told = 0

        def read(form: Any = form, body: bytes = body) -> None:
            nonlocal told
            try:
                for need in form.steps(body, None):
                    told = max(told, need)
            except RequestError:
                pass

        used = peak(read)
        assert used < told + (1 << 16), f"{type(form).__name__} {body[:80]!r}: {used} bytes where the steps say {told}"
        if name in ("one", "whole"):
            assert told <= FRAME_WORTH * len(body) + WORTH * PIECE


def test_the_frame_of_a_request_is_read_whole() -> None:
    """A large part that is not a tensor is refused before it is decoded."""
    form = OpenInferenceCodec(ONE)
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}
    for body, words in (
        ({"inputs": [tensor], "parameters": {"a": "a" * LARGE}}, "parameters has"),
        ({"inputs": [{**tensor, "parameters": {"a": "a" * LARGE}}]}, "parameters of input 'x' has"),
        ({"inputs": [{**tensor, "shape": [1] * LARGE}]}, "shape of input 'x' has"),
        ({"inputs": [tensor], "outputs": [{"name": "y" * LARGE}]}, "outputs has"),
    ):
        with pytest.raises(RequestError, match=words):
            finish(form.steps(msgspec.json.encode(body), None))
