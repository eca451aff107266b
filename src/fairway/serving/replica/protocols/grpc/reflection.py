"""gRPC server reflection: describes the services and messages to gRPC tools."""

from __future__ import annotations

from fairway.serving.replica.protocols.grpc.proto_definition import GrpcMethod, ProtoFile, definitions
from fairway.serving.replica.protocols.grpc.protobuf import Message, ProtoField, tag, varint
from fairway.serving.replica.request_error import RequestError

PATHS = (
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
)
_REQUEST = "grpc.reflection.v1alpha.ServerReflectionRequest"
_RESPONSE = "grpc.reflection.v1alpha.ServerReflectionResponse"
_NOT_FOUND, _UNIMPLEMENTED = 5, 12
_TYPES = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed32": 7, "bool": 8, "string": 9, "bytes": 12,
    "uint32": 13, "enum": 14,
}  # fmt: skip
_MESSAGE = 11
_WELL_KNOWN = {
    "google.protobuf.Int64Value": ("google/protobuf/wrappers.proto", "Int64Value"),
    "google.protobuf.Any": ("google/protobuf/any.proto", "Any"),
}


def reflect(data: bytes | memoryview) -> bytes:
    """Answer one message of a client; raise `RequestError` when it is malformed."""
    schema = definitions().schema
    request = schema.decode(_REQUEST, data)
    try:
        response = _answer(request)
    except RequestError as error:
        code = _NOT_FOUND if error.status == 404 else _UNIMPLEMENTED
        response = {"error_response": {"error_code": code, "error_message": error.words}}
    return schema.encode(_RESPONSE, {"valid_host": request.get("host", ""), "original_request": request, **response})


def _answer(asked: Message) -> Message:
    if "list_services" in asked:
        names = sorted({path.split("/")[1] for path in definitions().methods})
        return {"list_services_response": {"service": [{"name": name} for name in names]}}
    if "file_containing_symbol" in asked:
        return _files(_file_of(asked["file_containing_symbol"]))
    if "file_by_filename" in asked:
        return _files(asked["file_by_filename"])
    raise RequestError(501, "message extensions are not used")


def _file_of(symbol: str) -> str:
    for name, (file, _) in _WELL_KNOWN.items():
        if symbol == name:
            return file
    for definition in definitions().files:
        local_name = symbol.removeprefix(f"{definition.package}.")
        services = {
            *definition.services,
            *(f"{service}.{method.name}" for service in definition.services for method in definition.services[service]),
        }
        if symbol.startswith(f"{definition.package}.") and (
            local_name in definition.messages or local_name in definition.enums or local_name in services
        ):
            return definition.file
    message = f"unknown symbol {symbol[:200]!r}"
    raise RequestError(404, message)


def _files(name: str) -> Message:
    return {"file_descriptor_response": {"file_descriptor_proto": [_descriptor(name)]}}


def _descriptor(name: str) -> bytes:
    """Return an encoded FileDescriptorProto."""
    for full_name, (file, message) in _WELL_KNOWN.items():
        if name == file:
            messages = {message: definitions().schema.messages[full_name]}
            return _file(ProtoFile(file, "google.protobuf", {}, messages, {}))
    for definition in definitions().files:
        if definition.file == name:
            return _file(definition)
    message = f"unknown file {name[:200]!r}"
    raise RequestError(404, message)


def _file(file: ProtoFile) -> bytes:
    needed = {_home(field) for fields in file.messages.values() for field in fields} - {"", file.file}
    top = [name for name in file.messages if "." not in name]
    enums = [name for name in file.enums if "." not in name]
    return b"".join(
        [
            _text(1, file.file),
            _text(2, file.package),
            *(_text(3, dependency) for dependency in sorted(needed)),
            *(_part(4, _message(file, name)) for name in top),
            *(_part(5, _enum(file, name)) for name in enums),
            *(_part(6, _service(file, name, methods)) for name, methods in file.services.items()),
            _text(12, "proto3"),
        ]
    )


def _home(field: ProtoField) -> str:
    """Return the file that defines a field's type; empty for a scalar."""
    if field.kind in _WELL_KNOWN:
        return _WELL_KNOWN[field.kind][0]
    name = field.enum or field.kind
    return _file_of(name) if "." in name else ""


def _message(file: ProtoFile, name: str) -> bytes:
    fields = file.messages[name]
    oneofs = list(dict.fromkeys(field.oneof for field in fields if field.oneof))
    inner = [inner_name for inner_name in file.messages if inner_name.rpartition(".")[0] == name]
    enums = [inner_name for inner_name in file.enums if inner_name.rpartition(".")[0] == name]
    maps = [field for field in fields if field.key]
    return b"".join(
        [
            _text(1, name.rpartition(".")[2]),
            *(_part(2, _field(file, name, field, oneofs)) for field in fields),
            *(_part(3, _message(file, inner_name)) for inner_name in inner),
            *(_part(3, _entry(file, name, field)) for field in maps),
            *(_part(4, _enum(file, inner_name)) for inner_name in enums),
            *(_part(8, _text(1, inner_name)) for inner_name in oneofs),
        ]
    )


def _field(file: ProtoFile, message: str, field: ProtoField, oneofs: list[str]) -> bytes:
    if field.key:
        kind, type_name = _MESSAGE, f".{file.package}.{message}.{_entry_name(field)}"
    else:
        kind, type_name = _TYPES.get(field.kind, _MESSAGE), _type_name(field)
    return b"".join(
        [
            _text(1, field.name),
            _number(3, field.number),
            _number(4, 3 if field.repeated or field.key else 1),
            _number(5, kind),
            _text(6, type_name) if type_name else b"",
            _number(9, oneofs.index(field.oneof)) if field.oneof else b"",
        ]
    )


def _entry(file: ProtoFile, message: str, field: ProtoField) -> bytes:
    """Return the entry message of a map field."""
    key, value = ProtoField(1, "key", field.key), ProtoField(2, "value", field.kind, enum=field.enum)
    fields = b"".join(_part(2, _field(file, message, member, [])) for member in (key, value))
    return _text(1, _entry_name(field)) + fields + _part(7, _number(7, 1))


def _entry_name(field: ProtoField) -> str:
    return "".join(word.capitalize() for word in field.name.split("_")) + "Entry"


def _type_name(field: ProtoField) -> str:
    name = field.enum or field.kind
    return f".{name}" if "." in name else ""


def _enum(file: ProtoFile, name: str) -> bytes:
    values = [_part(2, _text(1, value_name) + _number(2, number)) for value_name, number in file.enums[name].items()]
    return _text(1, name.rpartition(".")[2]) + b"".join(values)


def _service(file: ProtoFile, name: str, methods: tuple[GrpcMethod, ...]) -> bytes:
    return _text(1, name) + b"".join(
        _part(
            2,
            _text(1, method.name)
            + _text(2, f".{method.request}" if "." in method.request else f".{file.package}.{method.request}")
            + _text(3, f".{method.answer}" if "." in method.answer else f".{file.package}.{method.answer}")
            + (_number(5, 1) if method.request_streams else b"")
            + (_number(6, 1) if method.answer_streams else b""),
        )
        for method in methods
    )


def _text(number: int, text: str) -> bytes:
    return _part(number, text.encode())


def _part(number: int, content: bytes) -> bytes:
    return tag(number, 2) + varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return tag(number, 0) + varint(value)
