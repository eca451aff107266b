"""Parses the `*.proto` files beside this module into services and messages.

Only the parts of proto3 that these files use are supported: messages, enumerations, maps, `oneof` and services.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fairway.serving.replica.protocols.grpc.protobuf import NUMERIC, ProtoField, ProtoSchema

_TOKEN = re.compile(r"[A-Za-z_][\w.]*|\d+|\"[^\"]*\"|[{}=;<>,()]")
_SCALARS = NUMERIC | {"string", "bytes"}
_WELL_KNOWN = {
    "google.protobuf.Int64Value": (ProtoField(1, "value", "int64"),),
    "google.protobuf.Any": (ProtoField(1, "type_url", "string"), ProtoField(2, "value", "bytes")),
}


@dataclass(frozen=True, slots=True)
class GrpcMethod:
    """One method of a service."""

    name: str
    request: str
    answer: str
    request_streams: bool
    answer_streams: bool


@dataclass(slots=True)
class ProtoFile:
    """The content of one file."""

    file: str
    package: str = ""
    services: dict[str, tuple[GrpcMethod, ...]] = field(default_factory=dict)
    messages: dict[str, tuple[ProtoField, ...]] = field(default_factory=dict)
    """By name within the package, such as `ModelInferRequest.InferInputTensor`."""
    enums: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProtoFiles:
    """The content of all files."""

    files: tuple[ProtoFile, ...]
    schema: ProtoSchema
    methods: dict[str, GrpcMethod]
    """By path, such as `/inference.GRPCInferenceService/ModelInfer`."""

    def enum(self, name: str) -> dict[str, int]:
        """Return the values of an enumeration, by its name with the package."""
        return next(
            values for file in self.files for local_name, values in file.enums.items() if f"{file.package}.{local_name}" == name
        )


@functools.cache
def definitions() -> ProtoFiles:
    """Parse all files. They are read once, when gRPC is first used."""
    files = tuple(_ProtoParser(path).definition() for path in sorted(Path(__file__).parent.glob("*.proto")))
    enums = {f"{file.package}.{name}" for file in files for name in file.enums}
    names = {f"{file.package}.{name}" for file in files for name in file.messages} | set(_WELL_KNOWN)
    messages = dict(_WELL_KNOWN)
    for file in files:
        for name, fields in file.messages.items():
            resolved = tuple(_resolved(field, file.package, names, enums) for field in fields)
            file.messages[name] = messages[f"{file.package}.{name}"] = resolved
    methods = {
        f"/{file.package}.{service}/{method.name}": GrpcMethod(
            method.name,
            _full(method.request, file.package, names),
            _full(method.answer, file.package, names),
            method.request_streams,
            method.answer_streams,
        )
        for file in files
        for service, service_methods in file.services.items()
        for method in service_methods
    }
    return ProtoFiles(files, ProtoSchema(messages), methods)


def _resolved(one: ProtoField, package: str, names: set[str], enums: set[str]) -> ProtoField:
    kind, enum = one.kind, ""
    if kind not in _SCALARS:
        if f"{package}.{kind}" in enums:
            kind, enum = "enum", f"{package}.{kind}"
        else:
            kind = _full(kind, package, names)
    return ProtoField(one.number, one.name, kind, one.repeated, one.key, one.oneof, enum)


def _full(name: str, package: str, names: set[str]) -> str:
    full = name if name in names else f"{package}.{name}"
    if full not in names:
        message = f"package {package}: no message {name}"
        raise ValueError(message)
    return full


class _ProtoParser:
    """Parses one file."""

    def __init__(self, path: Path) -> None:
        text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        self._tokens: Iterator[str] = iter(_TOKEN.findall(text))
        self._found = ProtoFile(path.name)

    def definition(self) -> ProtoFile:
        """Return the content of the file."""
        for token in self._tokens:
            if token == "syntax":
                self._until(";")
            elif token == "package":
                self._found.package = self._next()
            elif token == "message":
                self._message("")
            elif token == "enum":
                self._enum("")
            elif token == "service":
                self._service()
        return self._found

    def _next(self) -> str:
        return next(self._tokens)

    def _until(self, end: str) -> list[str]:
        tokens = []
        while (token := self._next()) != end:
            tokens.append(token)
        return tokens

    def _message(self, outer: str) -> None:
        name = outer + self._next()
        self._next()
        fields: list[ProtoField] = []
        self._found.messages[name] = ()
        while (token := self._next()) != "}":
            if token == "message":
                self._message(f"{name}.")
            elif token == "enum":
                self._enum(f"{name}.")
            elif token == "oneof":
                oneof = self._next()
                self._next()
                while (token := self._next()) != "}":
                    fields.append(self._field(token, oneof))
            else:
                fields.append(self._field(token, ""))
        self._found.messages[name] = tuple(fields)

    def _field(self, kind: str, oneof: str) -> ProtoField:
        repeated, key = kind == "repeated", ""
        if repeated:
            kind = self._next()
        elif kind == "map":
            _, key, _, kind, _ = (self._next() for _ in range(5))
        name, _, number, _ = (self._next() for _ in range(4))
        return ProtoField(int(number), name, kind, repeated, key, oneof)

    def _enum(self, outer: str) -> None:
        name = outer + self._next()
        self._next()
        values = {}
        while (token := self._next()) != "}":
            _, number, _ = (self._next() for _ in range(3))
            values[token] = int(number)
        self._found.enums[name] = values

    def _service(self) -> None:
        name = self._next()
        self._next()
        methods = []
        while self._next() != "}":
            method = self._next()
            request, response = self._side(), self._side()
            self._next()
            methods.append(GrpcMethod(method, request[-1], response[-1], len(request) > 1, len(response) > 1))
        self._found.services[name] = tuple(methods)

    def _side(self) -> list[str]:
        """Return the tokens in the next parentheses."""
        self._until("(")
        return self._until(")")
