"""A plan prepared for routing: chooses the backend of a request."""

from __future__ import annotations

from collections.abc import Callable, Collection

from fairway.serving.router.message_head import RequestHead
from fairway.serving.router.routing.backend import RoutedBackend
from fairway.serving.router.routing.weighted_choice import RequestShare, WeightedTurns, stay
from fairway.state.serving.route import RouteBackend, RoutePlan


class RouteTable:
    """The plan in force and its backends. The weighted turns continue from plan to plan."""

    __slots__ = ("_by_revision", "_matches", "_mirror", "_sticky", "_turns", "_used", "places", "plan", "weights")

    def __init__(self) -> None:
        self.plan = RoutePlan("")
        self.places: dict[RouteBackend, RoutedBackend] = {}
        self.weights: dict[int, int] = {}
        self._turns = WeightedTurns()
        self._mirror = RequestShare()
        self._by_revision: dict[int, list[RoutedBackend]] = {}
        self._matches: list[tuple[bytes, bytes, int]] = []
        self._sticky = b""
        self._used: dict[int, int] = {}

    def put(self, plan: RoutePlan, make: Callable[[RouteBackend], RoutedBackend]) -> None:
        """Put another plan in force. Backends that remain keep their connections."""
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

    def choose(self, head: RequestHead, now: float, without: Collection[RoutedBackend] = ()) -> RoutedBackend | None:
        """Return the backend for a request; None if none can take one now."""
        open_places = self._open(now, without)
        if not open_places:
            return None
        revision = self._revision(head, open_places)
        return None if revision is None else self._lightest(revision, open_places)

    def shadow(self, revision_taken: int, now: float) -> RoutedBackend | None:
        """Return the backend that gets a copy of this request; None if it is not copied."""
        mirror = self.plan.mirror
        if mirror is None or mirror.revision == revision_taken or not self._mirror.take(mirror.share):
            return None
        places = {mirror.revision: [place for place in self._by_revision.get(mirror.revision, ()) if place.is_open(now)]}
        return self._lightest(mirror.revision, places) if places[mirror.revision] else None

    def has_mirror(self) -> bool:
        """Return whether requests are copied, that is, whether the mirror's revision has backends."""
        return self.plan.mirror is not None and self.plan.mirror.revision in self._by_revision

    def _open(self, now: float, without: Collection[RoutedBackend]) -> dict[int, list[RoutedBackend]]:
        if not without and not any(place.suspect_until for place in self.places.values()):
            return self._by_revision
        open_places: dict[int, list[RoutedBackend]] = {}
        for revision, places in self._by_revision.items():
            candidates = [place for place in places if place.is_open(now) and place not in without]
            if candidates:
                open_places[revision] = candidates
        return open_places

    def _revision(self, head: RequestHead, places: dict[int, list[RoutedBackend]]) -> int | None:
        for header, value, revision in self._matches:
            if revision in places and head.value_of(header) == value:
                return revision
        weights = {revision: weight for revision, weight in self.weights.items() if weight and revision in places}
        if not weights:
            # A revision without a weight (a mirror's, or one that is not yet trusted) must not get requests by accident.
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

    def _lightest(self, revision: int, places: dict[int, list[RoutedBackend]]) -> RoutedBackend:
        """Return the backend with the fewest requests in flight; equal ones take turns."""
        candidates = places[revision]
        if len(candidates) == 1:
            return candidates[0]
        start = self._used.get(revision, 0) + 1
        self._used[revision] = start
        size = len(candidates)
        return min((candidates[(start + step) % size] for step in range(size)), key=_in_flight)


def _in_flight(place: RoutedBackend) -> int:
    return place.count.in_flight
