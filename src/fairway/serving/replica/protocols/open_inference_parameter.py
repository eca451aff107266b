"""Parameters of the Open Inference Protocol: each is either supported or refused, and none is ignored silently."""

from __future__ import annotations

from typing import Any

from fairway.serving.replica.request_error import bad

_SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")
_SHARED_MEMORY = ("shared_memory_region", "shared_memory_byte_size", "shared_memory_offset")
_HINTS = frozenset({"content_type", "headers"})
"""How MLServer's clients want tensors to be presented to a model; the tensors are the same."""
_REQUEST = frozenset({"binary_data_output", "priority", "timeout", *_SEQUENCE, *_HINTS})
_INPUT = frozenset({"binary_data_size", *_HINTS})
_OUTPUT = frozenset({"binary_data", "classification", *_HINTS})
_MOST_TIMEOUT = 10**6 * 10**6
"""Microseconds; a longer timeout counts as none."""


def check_request(parameters: dict[str, Any]) -> float:
    """Raise 400 for unsupported parameters; return the timeout in seconds, 0 for none."""
    for name in _SEQUENCE:
        if parameters.get(name):
            message = f"the request has {name} {str(parameters[name])[:40]!r}: models keep no state between requests"
            raise bad(message, "send whole inputs without sequence parameters")
    if parameters.get("priority"):
        message = f"the request has priority {str(parameters['priority'])[:40]!r}: requests are answered in the order of arrival"
        raise bad(message, "leave it out, or serve urgent requests with a separate service")
    _check_names(parameters, _REQUEST, "the request")
    timeout = parameters.get("timeout") or 0
    if type(timeout) is not int or timeout < 0:
        message = f"the timeout is {str(timeout)[:40]!r}"
        raise bad(message, "send microseconds as a whole number")
    return timeout / 1e6 if timeout < _MOST_TIMEOUT else 0.0


def check_input(name: str, parameters: dict[str, Any]) -> None:
    """Raise 400 for unsupported parameters."""
    _check_names(parameters, _INPUT, f"input {name!r}")


def check_output(name: str, parameters: dict[str, Any]) -> int:
    """Raise 400 for unsupported parameters; return the number of best classes requested, 0 for the values."""
    _check_names(parameters, _OUTPUT, f"output {name!r}")
    count = parameters.get("classification", 0)
    if type(count) is not int or count < 0:
        message = f"output {name!r}: classification is {str(count)[:40]}"
        raise bad(message, "send the number of classes as a whole number")
    return count


def _check_names(parameters: dict[str, Any], known: frozenset[str], place: str) -> None:
    if parameters.keys() <= known:
        return
    if any(name in parameters for name in _SHARED_MEMORY):
        message = f"{place} is in shared memory, which is not supported"
        raise bad(message, "send tensors as binary data")
    name = next(parameter for parameter in parameters if parameter not in known)
    message = f"{place} has the parameter {name[:100]!r}, which the model does not take"
    raise bad(message, f"leave it out; the known parameters are: {', '.join(sorted(known))}")
