"""Where a service is asked, and how."""

from __future__ import annotations

import msgspec

from fairway.state.model import ModelVersion
from fairway.state.service import Service
from fairway.views.request import curl_line, example_request


class EndpointView(msgspec.Struct, frozen=True):
    """The address of a service with a request that works."""

    url: str = ""
    """Empty until it listens."""
    example: str = ""
    """A line to paste."""
    example_path: str = ""
    example_body: str = ""


def endpoint_view(service: Service, model: ModelVersion | None) -> EndpointView:
    """Where the service is asked; with the model, what may be asked."""
    if not service.port:
        return EndpointView()
    url = f"http://127.0.0.1:{service.port}"
    request = example_request(model) if model is not None else None
    return EndpointView(url, curl_line(url, request), request.path if request else "", request.body if request else "")
