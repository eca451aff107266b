"""Errors for unknown paths: they name the part that is wrong, and what exists instead."""

from __future__ import annotations

from fairway.serving.replica.model.served_model import ServedModel, check_version
from fairway.serving.replica.request_error import RequestError

_TALK = ("completions", "chat/completions", "embeddings")
_SHOWN = 500


def unknown(model: ServedModel, path: str) -> RequestError:
    """Return the error for a path that does not exist."""
    parts = path[:_SHOWN].split("/")
    if len(parts) == 3 and "." in parts[1]:  # /inference.GRPCInferenceService/ModelInfer
        return RequestError(501, f"unknown gRPC method {path[:_SHOWN]}", fix="see docs/protocols.md for the services")
    if len(parts) > 3 and parts[2] == "models" and parts[1] in ("v1", "v2"):  # /v1/models/NAME
        name = parts[3].partition(":")[0]
        if name != model.name:
            return RequestError(404, f"no model {name!r} here", fix=f"{model.name!r} is served")
        if parts[-1].endswith(":explain"):
            return RequestError(404, f"model {name!r} has no explainer", fix="use :predict")
        if len(parts) > 5 and parts[4] == "versions":  # /v1/models/NAME/versions/7
            try:
                check_version(model, parts[5].partition(":")[0])
            except RequestError as error:
                return error
        if len(parts) > 5 and parts[4] == "labels" and (label := parts[5].partition(":")[0]) not in model.labels:
            return RequestError(404, f"model {name!r} has no label {label!r} here", fix=f"version {model.version} is served")
    if path.removeprefix("/openai").removeprefix("/v1/") in _TALK:
        return RequestError(404, f"model {model.name!r} does not support {path}", fix="use the paths below /v2 or /v1/models")
    return RequestError(404, f"unknown path {path[:_SHOWN]}", fix="see docs/protocols.md for the paths")


def expects_openai(path: str, *, talks: bool) -> bool:
    """Whether errors at a path use OpenAI's format. `/v1/models` is used by clients of several protocols."""
    return path.startswith("/openai/") or (path.startswith("/v1/") and (talks or not path.startswith("/v1/models/")))
