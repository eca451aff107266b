"""A plan made ready: which backend takes a request."""

from __future__ import annotations

from collections.abc import Callable, Collection

from fairway.serving.router.choice import Share, Turns, stay
from fairway.serving.router.head import RequestHead
from fairway.serving.router.place import Place
from fairway.state.route import Backend, RoutePlan


class Routes:
    """The plan in force and its backends. Turns go on from plan to plan."""

    __slots__ = ("_by_revision", "_matches", "_mirror", "_sticky", "_turns", "_used", "places", "plan", "weights")

    def __init__(self) -> None:
        self.plan = RoutePlan("")
        self.places: dict[Backend, Place] = {}
        self.weights: dict[int, int] = {}
        self._turns = Turns()
        self._mirror = Share()
        self._by_revision: dict[int, list[Place]] = {}
        self._matches: list[tuple[bytes, bytes, int]] = []
        self._sticky = b""
        self._used: dict[int, int] = {}

    def put(self, plan: RoutePlan, make: Callable[[Backend], Place]) -> None:
        """Follow another plan from now on. Backends that stay keep their connections."""
        places = {backend: self.places.get(backend) or make(backend) for backend in plan.backends}
        for backend, place in self.places.items():
            if backend not in places:
                place.leave()
        self.places, self.plan = places, plan
        self._by_revision = {}
        for place in places.values():
            self._by_revision.setdefault(place.backend.revision, []).append(place)
        self.weights = dict(plan.weights)
        self._matches = [(match.header.lower().encode(), match.value.encode(), match.revision) for match in plan.matches]
        self._sticky = plan.sticky.lower().encode()

    def choose(self, head: RequestHead, now: float, without: Collection[Place] = ()) -> Place | None:
        """The backend for a request; None when none can take one now."""
        open_places = self._open(now, without)
        if not open_places:
            return None
        revision = self._revision(head, open_places)
        return None if revision is None else self._lightest(revision, open_places)

    def shadow(self, revision_taken: int, now: float) -> Place | None:
        """The backend that gets a copy, when this request is one of which there should be one."""
        mirror = self.plan.mirror
        if mirror is None or mirror.revision == revision_taken or not self._mirror.take(mirror.share):
            return None
        places = {mirror.revision: [place for place in self._by_revision.get(mirror.revision, ()) if place.is_open(now)]}
        return self._lightest(mirror.revision, places) if places[mirror.revision] else None

    def has_mirror(self) -> bool:
        """Whether any request is copied."""
        return self.plan.mirror is not None and self.plan.mirror.revision in self._by_revision

    def _open(self, now: float, without: Collection[Place]) -> dict[int, list[Place]]:
        if not without and not any(place.suspect_until for place in self.places.values()):
            return self._by_revision
        found: dict[int, list[Place]] = {}
        for revision, places in self._by_revision.items():
            fit = [place for place in places if place.is_open(now) and place not in without]
            if fit:
                found[revision] = fit
        return found

    def _revision(self, head: RequestHead, places: dict[int, list[Place]]) -> int | None:
        for header, value, revision in self._matches:
            if revision in places and head.value_of(header) == value:
                return revision
        weights = {revision: weight for revision, weight in self.weights.items() if weight and revision in places}
        if not weights:
            # A revision that was given no part (one that is only mirrored to, or not yet trusted) gets none by accident either.
            if self.weights:
                return None
            weights = dict.fromkeys(places, 1)
        if len(weights) == 1:
            return next(iter(weights))
        if self._sticky:
            sender = head.value_of(self._sticky)
            if sender:
                return stay(sender, weights)
        return self._turns.next(weights)

    def _lightest(self, revision: int, places: dict[int, list[Place]]) -> Place:
        """The one with the least under way; among equals each in turn."""
        fit = places[revision]
        if len(fit) == 1:
            return fit[0]
        start = self._used.get(revision, 0) + 1
        self._used[revision] = start
        size = len(fit)
        return min((fit[(start + step) % size] for step in range(size)), key=_in_flight)


def _in_flight(place: Place) -> int:
    return place.count.in_flight
