"""The gRPC definitions compared with the descriptors of real clients, and messages encoded and decoded."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from fairway.serving.replica.protocols.grpc.proto_definition import definitions
from fairway.serving.replica.protocols.grpc.protobuf import MOST_PACKED, MOST_PARTS, ProtoField, ProtoSchema
from fairway.serving.replica.request_error import RequestError


def known():
    pytest.importorskip("tritonclient.grpc", reason="tritonclient[grpc] is not installed")
    from grpc_health.v1 import health_pb2
    from grpc_reflection.v1alpha import reflection_pb2
    from tritonclient.grpc import model_config_pb2, service_pb2

    files = [module.DESCRIPTOR for module in (service_pb2, model_config_pb2, health_pb2, reflection_pb2)]
    messages = {}

    def add(message) -> None:
        messages[message.full_name] = message
        for inner in message.nested_types:
            add(inner)

    for file in files:
        for message in file.message_types_by_name.values():
            add(message)
    return files, messages


NEWER = {"grpc.health.v1.HealthListRequest", "grpc.health.v1.HealthListResponse", "/grpc.health.v1.Health/List"}
"""Additions to the protocols that the older clients required by Triton's client lack; newer clients are compared."""


def test_names_numbers_and_types_are_those_of_the_clients() -> None:
    _, messages = known()
    checked = 0
    for name, fields in definitions().schema.messages.items():
        if name.startswith(("tensorflow.", "google.")) or (name in NEWER and name not in messages):
            continue
        theirs = {field.name: field for field in messages[name].fields}
        for field in fields:
            other = theirs[field.name]
            is_map = other.message_type is not None and other.message_type.GetOptions().map_entry
            assert field.number == other.number, (name, field.name)
            assert bool(field.key) == is_map, (name, field.name)
            assert field.repeated == (other.is_repeated and not is_map), (name, field.name)
            kinds = {
                1: "double",
                2: "float",
                3: "int64",
                4: "uint64",
                5: "int32",
                8: "bool",
                9: "string",
                12: "bytes",
                13: "uint32",
            }
            if not is_map and other.type in kinds:
                assert field.kind == kinds[other.type], (name, field.name)
            checked += 1
    assert checked > 100


def test_methods_are_those_of_the_clients() -> None:
    files, _ = known()
    theirs = {
        f"/{service.full_name}/{method.name}": (method.input_type.full_name, method.output_type.full_name)
        for file in files
        for service in file.services_by_name.values()
        for method in service.methods
    }
    for path, method in definitions().methods.items():
        if not path.startswith("/tensorflow.") and not (path in NEWER and path not in theirs):
            assert theirs[path] == (method.request, method.answer)


def test_a_message_comes_through_another_implementation() -> None:
    known()
    from tritonclient.grpc import service_pb2

    model_infer_request = service_pb2.ModelInferRequest(model_name="m", id="é", raw_input_contents=[b"x" * 5000])
    model_infer_request.inputs.add(name="x", datatype="INT64", shape=[2, -1]).contents.int64_contents.extend(
        [1, -(1 << 63), (1 << 63) - 1]
    )
    model_infer_request.inputs.add(name="f", datatype="FP32").contents.fp32_contents.extend([0.5, -1.0])
    model_infer_request.parameters["p"].double_param = 0.25
    schema = definitions().schema
    read = schema.decode("inference.ModelInferRequest", model_infer_request.SerializeToString())
    assert read["inputs"][0]["contents"]["int64_contents"].tolist() == [1, -(1 << 63), (1 << 63) - 1]
    assert service_pb2.ModelInferRequest.FromString(schema.encode("inference.ModelInferRequest", read)) == model_infer_request


SCHEMA = ProtoSchema(
    {"a.M": (ProtoField(1, "n", "int64", repeated=True), ProtoField(2, "t", "bytes", repeated=True), ProtoField(3, "m", "a.M"))}
)


def test_packed_and_single_numbers_are_read_alike() -> None:
    assert list(SCHEMA.decode("a.M", b"\x0a\x03\x01\xac\x02\x08\x05")["n"]) == [1, 300, 5]
    assert list(SCHEMA.decode("a.M", b"\x08\x05\x0a\x01\x07")["n"]) == [5, 7]


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05\x01",
        b"\x0a\x01\x80",
        b"\xff" * 11,
        b"\x0b",
        b"\x12\xff\xff\xff\xff\x0f",
        b"\x09\x01",
        b"\x0a\x0b" + b"\xff" * 11,
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(RequestError) as raised:
        SCHEMA.decode("a.M", data)
    assert raised.value.status == 400


def test_what_would_take_far_more_memory_than_its_bytes_is_refused() -> None:
    for data in (b"\x12\x00" * (MOST_PARTS + 1), b"\x0a" + b"\x81\x80\x80\x02" + b"\x01" * (MOST_PACKED + 1)):
        with pytest.raises(RequestError) as raised:
            SCHEMA.decode("a.M", data)
        assert raised.value.status == 413
    deep = b""
    for _ in range(100):
        deep = b"\x1a" + (bytes([len(deep)]) if len(deep) < 128 else bytes([len(deep) & 127 | 128, len(deep) >> 7])) + deep
    with pytest.raises(RequestError):
        SCHEMA.decode("a.M", deep)


def test_any_bytes_are_a_message_or_refused() -> None:
    random = np.random.default_rng(0)
    for size in random.integers(0, 60, 2000).tolist():
        data = random.integers(0, 256, size, "u1").tobytes()
        with suppress(RequestError):  # any other exception is a bug
            definitions().schema.decode("inference.ModelInferRequest", data)
