"""A replica as a process: third-party clients, bad input over real sockets, and its shutdown."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openai
import pytest
import tritonclient.http as triton
from onnx import TensorProto, helper, numpy_helper
from replica_process import ReplicaProcess, answer_of, replica

MODELS = Path(__file__).parent / "replica_models"
TEXT = "the ship takes the fairway and the fairway takes the ship to the sea where the sea takes the ship home"
SLOW = """
import time
import numpy as np
class Model:
    signature = {
        "inputs": [{"name": "seconds", "datatype": "FP32", "shape": [-1]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
    }
    def predict(self, inputs):
        time.sleep(float(inputs["seconds"].max()))
        return {"y": inputs["seconds"]}
"""


@pytest.fixture(scope="module")
def doubler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`y = 2 x`, rows of three; and the length of a string, to have BYTES."""
    folder = tmp_path_factory.mktemp("doubler")
    two = numpy_helper.from_array(np.array(2, np.float32), "two")
    nodes = [helper.make_node("Mul", ["x", "two"], ["y"]), helper.make_node("Identity", ["t"], ["same"])]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3]),
        helper.make_tensor_value_info("t", TensorProto.STRING, ["n", 1]),
    ]
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3]),
        helper.make_tensor_value_info("same", TensorProto.STRING, ["n", 1]),
    ]
    model = helper.make_model(helper.make_graph(nodes, "m", inputs, outputs, [two]), opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, folder / "model.onnx")
    return folder


@pytest.fixture(scope="module")
def served(doubler: Path) -> Iterator[ReplicaProcess]:
    with replica(
        doubler, "--name", "m", "--version", "7", "--label", "champion", "--max-body", "100000", "--body-timeout", "1"
    ) as made:
        yield made


def question(rows: int = 1, value: float = 1.0) -> dict[str, Any]:
    return {
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [rows, 3], "data": [value] * 3 * rows},
            {"name": "t", "datatype": "BYTES", "shape": [rows, 1], "data": ["ä"] * rows},
        ]
    }


def still_works(served: ReplicaProcess) -> None:
    status, answer, _ = served.ask("POST", "/v2/models/m/infer", question(2, 1.5))
    assert status == 200
    assert [output["data"] for output in answer["outputs"]] == [[3.0] * 6, ["ä", "ä"]]


@pytest.mark.parametrize("binary", [True, False])
def test_tritons_client(served: ReplicaProcess, binary: bool) -> None:
    client = triton.InferenceServerClient(f"127.0.0.1:{served.port}")
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("m")
    assert client.is_model_ready("m", "7")
    assert client.get_server_metadata()["name"] == "fairway"
    assert client.get_model_metadata("m", "7")["versions"] == ["7"]
    assert client.get_model_repository_index() == [{"name": "m", "version": "7", "state": "READY", "reason": ""}]
    x, t = triton.InferInput("x", [2, 3], "FP32"), triton.InferInput("t", [2, 1], "BYTES")
    values, texts = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([["ä"], ["longer"]], object)
    x.set_data_from_numpy(values, binary_data=binary)
    t.set_data_from_numpy(texts, binary_data=binary)
    wanted = [triton.InferRequestedOutput("y", binary_data=binary), triton.InferRequestedOutput("same", binary_data=not binary)]
    for version in ("", "7"):
        result = client.infer("m", [x, t], model_version=version, outputs=wanted, request_id="q")
        assert result.as_numpy("y").tolist() == (2 * values).tolist()
        assert [each.decode() if isinstance(each, bytes) else each for each in result.as_numpy("same").ravel()] == ["ä", "longer"]
        assert result.get_response()["id"] == "q"
    with pytest.raises(triton.InferenceServerException, match="no version '8'"):
        client.infer("m", [x, t], model_version="8")
    with pytest.raises(triton.InferenceServerException, match="no model 'other'"):
        client.infer("other", [x, t])
    client.close()


def test_tf_serving_as_documented(served: ReplicaProcess) -> None:
    for base in ("/v1/models/m", "/v1/models/m/versions/7", "/v1/models/m/labels/champion"):
        status, answer, _ = served.ask("GET", base)
        assert (status, answer["model_version_status"][0]["state"], answer["object"]) == (200, "AVAILABLE", "model")
        assert served.ask("GET", f"{base}/metadata")[1]["model_spec"]["name"] == "m"
        status, answer, _ = served.ask("POST", f"{base}:predict", {"instances": [{"x": [1, 2, 3], "t": [{"b64": "w6Q="}]}]})
        assert (status, answer) == (200, {"predictions": [{"y": [2.0, 4.0, 6.0], "same": ["ä"]}]})
    for path in ("/v1/models/other", "/v1/models/m/versions/8", "/v1/models/m/labels/other", "/v1/models/m/versions/8:predict"):
        status, answer, _ = served.ask("GET", path)
        assert status == 404
        assert answer["error"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v2/models/m/infer", None, 405),
        ("DELETE", "/v2/models/m", None, 405),
        ("POST", "/v2/models/other/infer", b"{}", 404),
        ("POST", "/v2/models/m/versions/8/infer", b"{}", 404),
        ("POST", "/v2/models/..%2f..%2fetc/infer", b"{}", 404),
        ("POST", "/v2/models/m/infer", b"", 400),
        ("POST", "/v2/models/m/infer", b'{"inputs": [', 400),
        ("POST", "/v2/models/m/infer", b"[" * 90_000, 400),
        ("POST", "/v2/models/m/infer", b" " * 100_001, 413),
        ("POST", "/v1/models/m:predict", b'{"instances": {}}', 400),
        ("POST", "/v1/completions", b"{}", 404),
    ],
)
def test_bad_requests_are_told_so(served: ReplicaProcess, method: str, path: str, body: bytes | None, status: int) -> None:
    found, answer, _ = served.ask(method, path, body)
    assert found == status
    assert isinstance(answer["error"]["message"] if path == "/v1/completions" else answer["error"], str)
    still_works(served)


@pytest.mark.parametrize("value", ["-1", "999999999999999999999", "abc", "5"])
def test_games_with_the_length_of_the_head(served: ReplicaProcess, value: str) -> None:
    status, answer, _ = served.ask("POST", "/v2/models/m/infer", question(), {"Inference-Header-Content-Length": value})
    assert (status, "error" in answer) == (400, True)
    status, answer, _ = served.ask("POST", "/v2/models/m/infer", question(), {"Content-Encoding": "br"})
    assert status == 415
    still_works(served)


def raw(served: ReplicaProcess, data: bytes) -> bytes:
    """Send raw bytes; return the response until the server closes or pauses."""
    with socket.create_connection(("127.0.0.1", served.port), 10) as wire:
        wire.sendall(data)
        found = b""
        while more := wire.recv(65536):
            found += more
        return found


def test_smuggled_lengths_and_garbage(served: ReplicaProcess) -> None:
    head = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\n"
    assert raw(served, head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello").startswith(b"HTTP/1.1 400")
    assert raw(served, head + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert raw(served, head + b"Content-Length: -5\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert raw(served, b"\x16\x03\x01\x02\x00garbage\r\n\r\n").startswith(b"HTTP/1.1 400")
    upgrade = head + b"Connection: upgrade, close\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\n{}"
    assert raw(served, upgrade).startswith(b"HTTP/1.1 400")
    still_works(served)


def test_a_body_that_does_not_come(served: ReplicaProcess) -> None:
    head = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\n"
    assert raw(served, head + b"Content-Length: 500\r\n\r\n{").startswith(b"HTTP/1.1 408")
    assert raw(served, head + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n").startswith(b"HTTP/1.1 408")
    still_works(served)


def test_a_body_in_many_pieces_and_in_chunks(served: ReplicaProcess) -> None:
    body = json.dumps(question()).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:10], body[10:50], body[50:]))
    head = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    assert raw(served, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n").startswith(b"HTTP/1.1 200")
    large = b"%x\r\n%s\r\n" % (200_000, b" " * 200_000)
    assert raw(served, head + b"Transfer-Encoding: chunked\r\n\r\n" + large + b"0\r\n\r\n").startswith(b"HTTP/1.1 413")
    with socket.create_connection(("127.0.0.1", served.port), 10) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in head + b"Content-Length: %d\r\n\r\n" % len(body) + body:
            wire.send(bytes([byte]))
        assert wire.recv(65536).startswith(b"HTTP/1.1 200")


def test_requests_sent_before_the_last_answer_came_are_answered_in_order(served: ReplicaProcess) -> None:
    def one(value: float, path: str = "/v2/models/m/infer", last: bool = False) -> bytes:
        body = json.dumps(question(value=value)).encode()
        close = b"Connection: close\r\n" if last else b""
        return b"POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s" % (path.encode(), close, len(body), body)

    page = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    found = raw(served, one(1.0) + page + one(2.0) + one(3.0, "/v2/models/m/versions/7/infer") + page + one(4.0, last=True))
    seen = [part.split(b"}")[0] for part in found.split(b'"data":[')[1::2]]
    assert [json.loads(b"[" + part)[0] for part in seen] == [2.0, 4.0, 6.0, 8.0]
    assert found.count(b"HTTP/1.1 200") == 6
    assert found.index(b'"extensions"') > found.index(b"2.0")
    still_works(served)


def test_many_at_once_are_put_together(served: ReplicaProcess) -> None:
    before = served.ask("GET", "/fairway/load")[1]
    answers: list[Any] = []

    def go(value: float) -> None:
        answers.append((value, served.ask("POST", "/v2/models/m/infer", question(value=value))))

    threads = [threading.Thread(target=go, args=(float(value),)) for value in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer[1]["outputs"][0]["data"][0] for value, answer in answers] == [2 * value for value, _ in answers]
    after = served.ask("GET", "/fairway/load")[1]
    assert after["served"] - before["served"] == 24
    assert after["batch_rows"] - before["batch_rows"] == 24
    assert after["in_flight"] == after["queue"] == 0
    text = served.ask("GET", "/metrics")[1].decode()
    assert 'fairway_requests_total{model="m",version="7",code="200"}' in text


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slow")
    (folder / "model.py").write_text(SLOW)
    return folder


def sleepy(seconds: float) -> dict[str, Any]:
    return {"inputs": [{"name": "seconds", "datatype": "FP32", "shape": [1], "data": [seconds]}]}


def wait_until(condition: Any, seconds: float = 20.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come to pass"
        time.sleep(0.01)


def test_it_ends_when_all_are_answered(slow: Path) -> None:
    with replica(slow, "--name", "m", "--runtime", "python") as served:
        under_way, open_before = served.connection(), served.connection()
        open_before.request("GET", "/v2/health/ready")
        assert answer_of(open_before.getresponse())[0] == 200
        under_way.request("POST", "/v2/models/m/infer", json.dumps(sleepy(1.0)))
        wait_until(lambda: served.ask("GET", "/fairway/load")[1]["in_flight"] == 1)
        served.process.send_signal(signal.SIGTERM)
        wait_until(lambda: served.ask("GET", "/v2/health/ready")[0] == 503)
        # A request that has begun to arrive is waited for.
        half = json.dumps(sleepy(0.0)).encode()
        late = socket.create_connection(("127.0.0.1", served.port), 20)
        late.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(half) + half[:9])
        # Requests that still arrive over an open connection get a response, and then the connection is closed.
        open_before.request("POST", "/v2/models/m/infer", json.dumps(sleepy(0.0)))
        status, _, headers = answer_of(open_before.getresponse())
        assert (status, headers["connection"]) == (200, "close")
        status, _, headers = answer_of(under_way.getresponse())
        assert (status, headers["connection"]) == (200, "close")
        with pytest.raises(subprocess.TimeoutExpired):
            served.process.wait(1.5)
        late.sendall(half[9:])
        assert late.recv(65536).startswith(b"HTTP/1.1 200")
        late.close()
        assert served.process.wait(20) == 0
        under_way.close()
        open_before.close()


def test_who_comes_too_many_gets_429(slow: Path) -> None:
    with replica(slow, "--name", "m", "--runtime", "python", "--max-queue", "1", "--max-batch", "1") as served:
        wires: list[http.client.HTTPConnection] = []
        for number in range(2):
            wires.append(served.connection())
            wires[-1].request("POST", "/v2/models/m/infer", json.dumps(sleepy(1.0)))
            wait_until(lambda number=number: served.ask("GET", "/fairway/load")[1]["in_flight"] == number + 1)
        status, answer, headers = served.ask("POST", "/v2/models/m/infer", sleepy(0.0))
        assert (status, int(headers["retry-after"]) >= 1) == (429, True)
        assert "are already waiting" in answer["error"]
        assert [answer_of(wire.getresponse())[0] for wire in wires] == [200, 200]
        assert served.ask("GET", "/fairway/load")[1]["refused"] == 1
        for wire in wires:
            wire.close()


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    (folder / "text.txt").write_text(TEXT)
    shutil.copy(MODELS / "words_class.py", folder / "model.py")
    return folder


@pytest.fixture(scope="module")
def talking(words: Path) -> Iterator[ReplicaProcess]:
    with replica(words, "--name", "words", "--runtime", "python") as made:
        yield made


@pytest.mark.parametrize("prefix", ["/v1", "/openai/v1"])
def test_openais_client(talking: ReplicaProcess, prefix: str) -> None:
    with openai.OpenAI(base_url=talking.address + prefix, api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["words"]
        assert client.models.retrieve("words").id == "words"
        done = client.completions.create(model="words", prompt="the", max_tokens=4, seed=3)
        assert len(done.choices[0].text.split()) == 4
        assert set(done.choices[0].text.split()) <= set(TEXT.split())
        assert (done.choices[0].finish_reason, done.usage.completion_tokens) == ("length", 4)
        again = client.completions.create(model="words", prompt="the", max_tokens=4, seed=3, stream=True)
        assert "".join(piece.choices[0].text for piece in again) == done.choices[0].text
        messages = [{"role": "user", "content": "where"}]
        chat = client.chat.completions.create(model="words", messages=messages, max_tokens=1)
        assert (chat.choices[0].message.content, chat.choices[0].message.role) == ("the ", "assistant")
        stream = client.chat.completions.create(
            model="words", messages=messages, max_tokens=50, stop="sea", stream=True, stream_options={"include_usage": True}
        )
        pieces = list(stream)
        text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
        assert "sea" not in text
        assert pieces[-1].usage.total_tokens > 0
        vectors = client.embeddings.create(model="words", input=["the sea", "the the"])
        assert sorted(vectors.data[1].embedding)[-1] == 2.0
        with pytest.raises(openai.NotFoundError, match="no model 'other'"):
            client.completions.create(model="other", prompt="the")
        with pytest.raises(openai.InternalServerError, match="no words left"):
            client.completions.create(model="words", prompt="fail")


def test_long_prompts_are_counted(talking: ReplicaProcess) -> None:
    """A prompt above 32 KiB is processed; one that would exceed the memory bound when decoded is refused."""
    for count, wanted in ((20_000, 200), (1_200_000, 413)):
        asked = {"model": "words", "prompt": "the " * count, "max_tokens": 2}
        status, answer, _ = talking.ask("POST", "/v1/completions", asked)
        assert status == wanted, answer
    assert "--max-held" in answer["error"]["message"]
    assert talking.ask("POST", "/v1/embeddings", {"model": "words", "input": ["the"] * 5000})[0] == 400


def test_streams_take_turns_and_end_when_nobody_listens(talking: ReplicaProcess) -> None:
    with openai.OpenAI(base_url=f"{talking.address}/v1", api_key="none", max_retries=0) as client:
        endless = client.completions.create(model="words", prompt="the", stream=True)
        assert next(iter(endless)).choices[0].text
        other = client.completions.create(model="words", prompt="the", max_tokens=3)
        assert len(other.choices[0].text.split()) == 3
        endless.close()
        wait_until(lambda: talking.ask("GET", "/fairway/load")[1]["in_flight"] == 0)


def test_a_worker_that_dies_takes_the_replica_along_and_nobody_hangs(words: Path) -> None:
    with replica(words, "--name", "words", "--runtime", "python") as served:
        status, answer, _ = served.ask("POST", "/v1/completions", {"model": "words", "prompt": "die"})
        assert (status, "ended with -9" in answer["error"]["message"]) == (503, True)
        assert served.process.wait(20) == 1


@pytest.mark.parametrize(
    ("files", "arguments", "code", "words_"),
    [
        ({"model.pkl": b"x"}, (), 5, "pickle"),
        ({"model.safetensors": b"x"}, (), 5, "only weights"),
        ({"model.py": b"class Model: pass"}, (), 5, "runs its own code"),
        ({"model.py": b"class Model: pass", "fairway.json": b'{"format": "python"}'}, (), 5, "add --runtime python"),
        ({"model.py": b"class Model: pass"}, ("--runtime", "python"), 2, "inputs and outputs of the model are unknown"),
        ({"model.py": b"1/0"}, ("--runtime", "python"), 2, "ZeroDivisionError"),
        ({"model.onnx": b"garbage"}, (), 2, "cannot load it"),
        ({"model.onnx": b"x"}, ("--name", "../etc"), 2, "is not a valid name"),
    ],
)
def test_what_cannot_be_served_is_said(
    tmp_path: Path, files: dict[str, bytes], arguments: tuple[str, ...], code: int, words_: str
) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    command = [sys.executable, "-m", "fairway.serving.replica", "--folder", str(tmp_path), "--name", "m", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    assert words_ in done.stderr
