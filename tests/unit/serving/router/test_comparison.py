"""Answers of the inference protocols compared, and what a router does with pairs of them."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import signal
import socket
import struct
import zlib

import numpy as np
import pytest
from router_stage import Stage, until

from fairway.serving.router.comparison import frame, response_comparer
from fairway.serving.router.comparison.output_difference import OutputDifference, compare
from fairway.serving.router.comparison.response_output import IncomparableError, NoOutputError, outputs_of
from fairway.serving.router.comparison.worker import found_of, serve
from fairway.serving.router.wire_format import add_loads, decode_load, encode_load
from fairway.state.serving.load import OutputComparison
from fairway.state.serving.route import WHOLE, RouteBackend, RouteMirror

JSON = [b"content-type: application/json"]


def v2(*values, name="y", datatype="FP32", shape=None):
    shape = [1, len(values)] if shape is None else shape
    output = {"name": name, "datatype": datatype, "shape": shape, "data": list(values)}
    return json.dumps({"model_name": "m", "id": "7", "outputs": [output]}).encode()


def binary(*values, kind="<f4", datatype="FP32"):
    raw = np.array(values, kind).tobytes()
    output = {"name": "y", "datatype": datatype, "shape": [1, len(values)], "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"model_name": "m", "outputs": [output]}).encode()
    return [b"Inference-Header-Content-Length: %d" % len(head)], head + raw


def between(mine, copy, tolerance=0.001, lines=JSON):
    return compare(outputs_of(lines, mine), outputs_of(lines, copy), tolerance)


def test_equal_answers_and_those_within_the_tolerance_are_the_same():
    assert between(v2(0.1, 0.9), v2(0.1, 0.9)) == OutputDifference(classified=True)
    near = between(v2(0.1, 0.9), v2(0.1004, 0.9))
    assert (near.differs, near.reclassified) == (False, False)
    assert near.largest == pytest.approx(0.0004 / 0.9)
    assert between(v2(1000.0, 1.0), v2(1000.5, 1.0)).differs is False
    assert between(v2(1.0, 1.0), v2(1.5, 1.0)).differs is True


def test_a_wrong_sign_and_a_missing_class():
    wrong = between(v2(-2.0, 3.0), v2(2.0, -3.0))
    assert (wrong.differs, wrong.reclassified, wrong.largest) == (True, True, 2.0)
    assert between(v2(0.1, 0.2, 0.7), v2(0.33, 0.67, 0.0)).reclassified is True
    assert between(v2(5.0), v2(-5.0)) == OutputDifference(differs=True, largest=2.0)
    tie = between(v2(0.5, 0.5), v2(0.4999, 0.5001))
    assert (tie.classified, tie.reclassified, tie.differs) == (True, False, False)


def test_names_types_and_shapes():
    assert between(v2(1.0), v2(1.0, name="z")) == OutputDifference(differs=True, relaid=True)
    assert between(v2(1.0), v2(1.0, datatype="FP64")) == OutputDifference(differs=True, relaid=True)
    assert between(v2(1.0, 2.0), v2(1.0, 2.0, shape=[2, 1])) == OutputDifference(differs=True, relaid=True)
    more = json.loads(v2(1.0))
    more["outputs"].append({"name": "extra", "datatype": "INT64", "shape": [1], "data": [1]})
    assert between(v2(1.0), json.dumps(more).encode()) == OutputDifference()
    assert between(json.dumps(more).encode(), v2(1.0)).relaid is True


@pytest.mark.parametrize("bad", [b"NaN", b"Infinity", b"null", b"1e999"])
def test_what_is_no_number_beside_one(bad):
    copy = v2(0.25, 7.5).replace(b"7.5", bad)
    found = between(v2(0.25, 7.5), copy)
    assert (found.differs, found.non_finite) == (False, True)
    both = between(copy, copy)
    assert (both.differs, both.non_finite) == (False, False)
    restored = between(copy, v2(0.25, 7.5))
    assert (restored.differs, restored.restored, found.restored) == (False, True, False)


def test_labels_are_classes():
    assert between(v2(3, 4, datatype="INT64"), v2(3, 4, datatype="INT64")) == OutputDifference(classified=True)
    other = between(v2(3, 4, datatype="INT64"), v2(3, 5, datatype="INT64"))
    assert (other.differs, other.reclassified) == (True, True)
    assert between(v2("cat", datatype="BYTES"), v2("dog", datatype="BYTES")).reclassified is True


@pytest.mark.parametrize(
    ("kind", "datatype"), [("<f4", "FP32"), ("<f8", "FP64"), ("<f2", "FP16"), ("<i8", "INT64"), ("u1", "UINT8"), ("?", "BOOL")]
)
def test_binary_tensors(kind, datatype):
    lines, body = binary(1, 0, 1, kind=kind, datatype=datatype)
    _, other = binary(0, 1, 0, kind=kind, datatype=datatype)
    assert compare(outputs_of(lines, body), outputs_of(lines, body), 0.001).differs is False
    assert compare(outputs_of(lines, body), outputs_of(lines, other), 0.001).differs is True


def test_binary_texts():
    raw = struct.pack("<I", 3) + b"cat"
    output = {"name": "y", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"outputs": [output]}).encode()
    lines = [b"inference-header-content-length:%d" % len(head)]
    assert compare(outputs_of(lines, head + raw), outputs_of(lines, head + raw), 0.0).differs is False
    assert compare(outputs_of(lines, head + raw), outputs_of(lines, head + raw[:-1] + b"r"), 0.0).differs is True


@pytest.mark.parametrize(
    ("mine", "copy", "differs"),
    [
        ({"predictions": [[0.1, 0.9]]}, {"predictions": [[0.1, 0.9]]}, False),
        ({"predictions": [[1, 0]]}, {"predictions": [[1.0, 0.0]]}, False),
        ({"predictions": [[0.1, 0.9]]}, {"predictions": [[0.9, 0.1]]}, True),
        ({"predictions": [{"a": 1.5, "b": [2.5]}]}, {"predictions": [{"a": 1.5, "b": [9.5]}]}, True),
        ({"outputs": {"a": [1.5], "b": ["x"]}}, {"outputs": {"b": ["x"], "a": [1.5]}}, False),
        ({"outputs": [[1.5]]}, {"outputs": [[-1.5]]}, True),
        ({"result": [[["cat", 0.9], ["dog", 0.1]]]}, {"result": [[["dog", 0.9], ["cat", 0.1]]]}, True),
        ({"predictions": [True]}, {"predictions": [False]}, True),
        ({"predictions": [[1.5, None]]}, {"predictions": [[1.5, None]]}, False),
    ],
)
def test_tensorflow_serving(mine, copy, differs):
    assert between(json.dumps(mine).encode(), json.dumps(copy).encode()).differs is differs


def test_compressed_answers():
    for name, packed in ((b"gzip", gzip.compress(v2(1.5))), (b"deflate", zlib.compress(v2(1.5)))):
        assert outputs_of([b"Content-Encoding: " + name], packed)[0].values.tolist() == [[1.5]]
    bomb = gzip.compress(b" " * (64 << 20))
    for lines, body in (
        ([b"content-encoding: br"], b"x"),
        ([b"content-encoding: gzip"], b"no"),
        ([b"content-encoding: gzip"], bomb),
    ):
        with pytest.raises(IncomparableError):
            outputs_of(lines, body)


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe", b"[]", b"{}", b'{"choices": []}', b"[" * 100_000, b'{"error": "no"}', b"\x89PNG", b'{"a":' * 9999]
)
def test_answers_without_outputs(body):
    with pytest.raises(NoOutputError):
        outputs_of(JSON, body)
    assert found_of((b"", b""), (body, v2(1.0)), 0.001) == (0, 0.0)
    bits, _ = found_of((b"", b""), (v2(1.0), body), 0.001)
    assert bits == frame.COMPARED | frame.DIFFERS | frame.RELAID


@pytest.mark.parametrize(
    "text",
    [
        '{"outputs":[{"name":"y","datatype":"FP32","shape":[-1],"data":[1]}]}',
        '{"outputs":[{"name":"y","datatype":"FP32","shape":[99999999999999999999],"data":[1]}]}',
        '{"outputs":[{"name":"y","datatype":"FP32","shape":[2],"data":[1]}]}',
        '{"outputs":[{"name":"y","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}]}',
        '{"outputs":[{"name":"y","datatype":"FP99","shape":[1],"data":[1]}]}',
        '{"outputs":[{"name":"y","datatype":"INT8","shape":[1],"data":[1000]}]}',
        '{"outputs":[{"name":"y","datatype":"FP32","shape":[1],"data":["x"]}]}',
        '{"outputs":[{"datatype":"FP32","shape":[1],"data":[1]}]}',
        '{"predictions": [[1, 2], [3]]}',
        '{"predictions": [{"a": 1}, {"b": 1}]}',
        '{"predictions": 3}',
    ],
)
def test_answers_that_are_wrong_in_themselves_are_not_compared(text):
    with pytest.raises(IncomparableError):
        outputs_of(JSON, text.encode())
    assert found_of((b"", b""), (text.encode(), text.encode()), 0.001) == (0, 0.0)


def test_the_worker_answers_each_pair_until_its_input_ends():
    mine, copy, head = v2(1.0, 2.0), v2(2.0, 1.0), b"\r\n".join(JSON)
    one = frame.PAIR.pack(7, 0.001, len(head), len(mine), len(head), len(copy)) + head + mine + head + copy
    strange = frame.PAIR.pack(8, 0.001, 0, 1, 0, 1) + b"xy"
    answers = io.BytesIO()
    serve(io.BytesIO(one + strange + b"cut"), answers)
    raw = answers.getvalue()
    number, bits, largest = frame.FOUND.unpack(raw[: frame.FOUND.size])
    assert (number, largest) == (7, 0.5)
    assert bits == frame.COMPARED | frame.DIFFERS | frame.CLASSIFIED | frame.RECLASSIFIED
    assert frame.FOUND.unpack(raw[frame.FOUND.size :]) == (8, 0, 0.0)


def answering(body, head=b"content-type: application/json\r\n", pieces=1, chunked=False):
    """Return a backend that answers every request with this body, in `pieces` pieces."""

    async def play(reader, writer):
        while True:
            asked = await reader.readuntil(b"\r\n\r\n")
            length = next((int(line[15:]) for line in asked.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
            await reader.readexactly(length)
            frames = b"transfer-encoding: chunked\r\n" if chunked else b"content-length: %d\r\n" % len(body)
            writer.write(b"HTTP/1.1 200 OK\r\n" + head + frames + b"\r\n")
            size = -(-len(body) // pieces)
            for at in range(0, len(body), size):
                piece = body[at : at + size]
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                await writer.drain()
                await asyncio.sleep(0)
            if chunked:
                writer.write(b"0\r\n\r\n")

    return play


async def shadowed(stage: Stage, mine, copy, tolerance=0.001, **how) -> tuple[RouteBackend, RouteBackend]:
    old, new = await stage.play(answering(mine, **how), "old", 1), await stage.play(answering(copy, **how), "new", 2)
    stage.plan(old, new, weights=((1, WHOLE),), mirror=RouteMirror(2, tolerance=tolerance))
    return old, new


def seen(stage: Stage) -> OutputComparison:
    return stage.load().revisions[2].outputs


@pytest.mark.parametrize("how", [{}, {"pieces": 5}, {"pieces": 3, "chunked": True}])
async def test_answers_to_copies_are_compared(stage: Stage, how) -> None:
    mine, copy = v2(*[0.5] * 2000, 3.0), v2(*[0.5] * 2000, -3.0)
    await shadowed(stage, mine, copy, **how)
    for _ in range(5):
        answer = await stage.ask(method="POST", body=b"abc")
        assert answer.body.count(b"-3.0") == 0
    await until(lambda: seen(stage).compared == 5)
    output_comparison = seen(stage)
    assert (
        output_comparison.differing,
        output_comparison.reclassified,
        output_comparison.incomparable,
        output_comparison.skipped,
        output_comparison.largest,
    ) == (5, 5, 0, 0, 2.0)
    assert stage.desk.comparer is not None
    assert stage.desk.comparer.used == 0
    assert decode_load(encode_load(stage.load())).revisions[2].outputs == output_comparison
    assert add_loads([stage.load(), stage.load()]).revisions[2].outputs.compared == 10


async def test_equal_answers_do_not_differ(stage: Stage) -> None:
    await shadowed(stage, v2(1.0, 2.0), v2(1.0, 2.0))
    await stage.ask(method="POST", body=b"abc")
    await until(lambda: seen(stage).compared == 1)
    assert seen(stage) == OutputComparison(compared=1, classified=1)


async def test_what_is_no_question_is_not_compared_and_what_is_no_answer_is_counted_so(stage: Stage) -> None:
    await shadowed(stage, b"hello", b"hello")
    await stage.ask()
    await until(lambda: stage.load().revisions[2].mirrored == 1)
    await stage.ask(method="POST", body=b"abc")
    await until(lambda: seen(stage).incomparable == 1)
    assert seen(stage) == OutputComparison(incomparable=1)


async def test_a_large_answer_is_not_kept(stage: Stage, monkeypatch) -> None:
    monkeypatch.setattr(response_comparer, "LARGEST", 100)
    await shadowed(stage, v2(*[1.0] * 100), v2(*[1.0] * 100))
    await stage.ask(method="POST", body=b"abc")
    await until(lambda: seen(stage).incomparable == 1)
    assert stage.desk.comparer.used == 0


async def test_without_a_tolerance_nothing_is_kept_and_no_process_runs(stage: Stage) -> None:
    old, new = await shadowed(stage, v2(1.0), v2(1.0), tolerance=None)
    await stage.ask(method="POST", body=b"abc")
    await until(lambda: sum(stage.load().revisions[2].latency) == 1)
    assert stage.desk.comparer is None
    stage.plan(old, new, weights=((1, WHOLE),), mirror=RouteMirror(2, tolerance=0.1))
    comparer = stage.desk.comparer
    await stage.ask(method="POST", body=b"abc")
    await until(lambda: seen(stage).compared == 1)
    process = comparer._process
    stage.plan(old, new, weights=((1, WHOLE),), mirror=RouteMirror(2, tolerance=0.2))
    assert stage.desk.comparer is comparer
    stage.plan(old, new, weights=((1, WHOLE),))
    assert stage.desk.comparer is None
    await until(lambda: process.returncode is not None)


async def test_a_process_that_is_killed_costs_its_pairs_and_is_started_again(stage: Stage) -> None:
    await shadowed(stage, v2(1.0), v2(1.0))
    await stage.ask(method="POST", body=b"abc")
    await until(lambda: seen(stage).compared == 1)
    process = stage.desk.comparer._process
    os.kill(process.pid, signal.SIGSTOP)
    await stage.ask(method="POST", body=b"abc")
    await until(lambda: stage.desk.comparer._asked)
    os.kill(process.pid, signal.SIGKILL)
    await until(lambda: seen(stage).skipped == 1)
    assert stage.desk.comparer.used == 0
    await stage.ask(method="POST", body=b"abc")
    await until(lambda: seen(stage).compared == 2)


async def test_a_process_that_compares_nothing_holds_nobody_up(stage: Stage) -> None:
    await shadowed(stage, v2(1.0), v2(1.0))
    await stage.ask(method="POST", body=b"abc")
    await until(lambda: seen(stage).compared == 1)
    process = stage.desk.comparer._process
    os.kill(process.pid, signal.SIGSTOP)
    for _ in range(response_comparer.WAITING + 10):
        assert (await stage.ask(method="POST", body=b"abc")).status == 200
    await until(lambda: stage.desk.mirrors == 0)
    assert seen(stage).skipped >= 10
    assert len(stage.desk.comparer._asked) <= response_comparer.WAITING
    os.kill(process.pid, signal.SIGCONT)
    await until(lambda: not stage.desk.comparer._asked)
    assert stage.desk.comparer.used == 0


async def test_clients_that_leave_free_what_was_kept(stage: Stage) -> None:
    async def slowly(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n" + b"x" * 50_000)
        await writer.drain()
        await reader.read()

    old, new = await stage.play(slowly, "old", 1), await stage.play(answering(v2(1.0)), "new", 2)
    stage.plan(old, new, weights=((1, WHOLE),), mirror=RouteMirror(2, tolerance=0.1))
    reader, writer = await stage.open()
    writer.write(b"POST /x HTTP/1.1\r\nHost: here\r\nContent-Length: 3\r\n\r\nabc")
    await reader.readexactly(40_000)
    await until(lambda: stage.desk.comparer.used > 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    await until(lambda: stage.desk.comparer.used == 0)


async def test_a_failed_copy_is_an_error_and_no_difference(stage: Stage) -> None:
    async def failing(reader, writer):
        while True:
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(3)
            writer.write(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")

    old, new = await stage.play(answering(v2(1.0)), "old", 1), await stage.play(failing, "new", 2)
    stage.plan(old, new, weights=((1, WHOLE),), mirror=RouteMirror(2, tolerance=0.1))
    await stage.ask(method="POST", body=b"abc")
    await until(lambda: stage.load().revisions[2].mirror_failed == 1)
    assert seen(stage) == OutputComparison()
    assert stage.desk.comparer.used == 0
