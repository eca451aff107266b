"""One operation of the document. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_ERRORS = {
    "400": "The request is invalid, or the model rejects its values.",
    "404": "There is no such model, version or label.",
    "413": "The body, or the answer to it, is too large.",
    "429": "Too many requests wait. `Retry-After` says when to try again.",
    "500": "The model failed.",
    "503": "No replica is ready.",
}
_REQUEST_ID = {
    "name": "x-request-id",
    "in": "header",
    "required": False,
    "description": "Request id: up to 200 letters, digits and `._:/+=@-`. Repeated in the answer, the access log and traces.",
    "schema": {"type": "string", "maxLength": 200, "pattern": "^[A-Za-z0-9._:/+=@-]+$"},
}


@dataclass(frozen=True, slots=True)
class OpenApiOperation:
    """One method at one path."""

    tag: str
    summary: str
    request: str = ""
    """The name of the body's schema; empty for no body."""
    answer: str = "Object"
    example: Any = None
    text: bool = False
    """Whether the answer is text."""
    binary: bool = False
    """Whether tensors may follow the JSON as bytes."""

    def render(self, path: str, method: str, taken: set[str]) -> dict[str, Any]:
        """Return the OpenAPI object. `taken`: operation ids already in use."""
        kind = "text/plain" if self.text else "application/json"
        schema = {"type": "string"} if self.text else reference(self.answer)
        answers: dict[str, Any] = {"200": {"description": "The answer.", "content": {kind: {"schema": schema}}}}
        operation: dict[str, Any] = {
            "tags": [self.tag],
            "summary": self.summary,
            "operationId": _id(path, method, taken),
            "parameters": [_REQUEST_ID],
            "responses": answers,
        }
        errors = _ERRORS if self.request else {"503": _ERRORS["503"]}
        for status, description in errors.items():
            answers[status] = {"description": description, "content": {"application/json": {"schema": reference("Error")}}}
        if self.request:
            content: dict[str, Any] = {"schema": reference(self.request)}
            if self.example is not None:
                content["example"] = self.example
            operation["requestBody"] = {"required": True, "content": {"application/json": content}}
        if self.binary:
            operation["description"] = (
                "Tensors may follow the JSON as raw bytes: set `Inference-Header-Content-Length` to the length of the JSON, and "
                "`binary_data_size` in the parameters of each such input."
            )
        return operation


def page(tag: str, summary: str, *, text: bool = False) -> OpenApiOperation:
    """Return a GET operation."""
    return OpenApiOperation(tag, summary, text=text)


def question(tag: str, summary: str, request: str, answer: str, example: Any, *, binary: bool = False) -> OpenApiOperation:
    """Return a POST operation for inference."""
    return OpenApiOperation(tag, summary, request, answer, example, binary=binary)


def reference(name: str) -> dict[str, Any]:
    """Return a reference to a schema by name."""
    return {"$ref": f"#/components/schemas/{name}"}


def _id(path: str, method: str, taken: set[str]) -> str:
    base = re.sub(r"[^A-Za-z0-9]+", "_", f"{method}_{path}").strip("_")
    name, number = base, 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    taken.add(name)
    return name
