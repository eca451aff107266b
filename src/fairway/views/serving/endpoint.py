"""View of a service's endpoint, with an example request."""

from __future__ import annotations

import msgspec

from fairway.state.model import ModelVersion
from fairway.views.serving.access import AccessView, curl_options
from fairway.views.serving.example_request import curl_line, example_request


class EndpointView(msgspec.Struct, frozen=True):
    """The URL of a service, with a request that works."""

    url: str = ""
    """Empty until the service listens."""
    example: str = ""
    """A `curl` command to paste."""
    example_path: str = ""
    example_body: str = ""


def endpoint_view(url: str, model: ModelVersion | None, access: AccessView = AccessView()) -> EndpointView:
    """Return the endpoint view of a URL, which is empty until the service listens; with a model, include an example request."""
    if not url:
        return EndpointView()
    request = example_request(model) if model is not None else None
    target_url, options = curl_options(access, url)
    line = curl_line(target_url, request, options)
    return EndpointView(url, line, request.path if request else "", request.body if request else "")
