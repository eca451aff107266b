"""Where a service is asked, and how."""

from __future__ import annotations

import msgspec

from fairway.state.model import ModelVersion
from fairway.views.access import AccessView, curl_options
from fairway.views.request import curl_line, example_request


class EndpointView(msgspec.Struct, frozen=True):
    """The address of a service with a request that works."""

    url: str = ""
    """Empty until it listens."""
    example: str = ""
    """A line to paste."""
    example_path: str = ""
    example_body: str = ""


def endpoint_view(url: str, model: ModelVersion | None, access: AccessView = AccessView()) -> EndpointView:
    """Where the service is asked (nowhere yet, when that is empty); with the model, what may be asked."""
    if not url:
        return EndpointView()
    request = example_request(model) if model is not None else None
    asked, options = curl_options(access, url)
    line = curl_line(asked, request, options)
    return EndpointView(url, line, request.path if request else "", request.body if request else "")
