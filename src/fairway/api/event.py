"""Events of an object, as a response."""

from __future__ import annotations

from starlette.responses import Response

from fairway.api.http.parameter import RequestParameters
from fairway.api.http.response import show
from fairway.app.application import Application
from fairway.views.event import event_list
from fairway.views.list_table import events_text


def show_events(application: Application, asked: RequestParameters, subject: str) -> Response:
    """Return the events of a subject, oldest first."""
    view = event_list(application.events(subject, asked.number("limit", 1000, least=1)))
    return show(
        asked,
        view,
        text=lambda page: events_text(view.events, application.clock.now(), page, run=subject),
        called=lambda: (event.reason for event in view.events),
    )
