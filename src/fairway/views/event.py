"""Views of events."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fairway.state.event import RunEvent
from fairway.units.notebook_card import NotebookView


class EventView(NotebookView, frozen=True):
    """An event."""

    time: float
    subject: str
    reason: str
    message: str


class EventList(msgspec.Struct, frozen=True):
    """Events, oldest first."""

    events: tuple[EventView, ...]


def event_list(events: Iterable[RunEvent]) -> EventList:
    """Return the views of events."""
    return EventList(tuple(EventView(event.time, event.subject, event.reason, event.message) for event in events))
