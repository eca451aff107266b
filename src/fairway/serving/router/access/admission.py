"""The one place where a request is admitted or refused, before any of it reaches a replica."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from fairway.serving.router.access.cors import CorsPolicy
from fairway.serving.router.access.failed_attempt import FailedAttempts
from fairway.serving.router.access.key_ring import ApiKeyRing, KeyFault, LimitedApiKey
from fairway.serving.router.access.refusal import RequestRefusal
from fairway.serving.router.host_rule import ANY, HostRules, check_page, is_loopback
from fairway.serving.router.message_head import BadHeadError, RequestHead
from fairway.serving.router.outcome_report import OWN, TARGET
from fairway.state.serving.access import AccessRules, KeyRule
from fairway.state.serving.route import RoutePlan
from fairway.units import rate

_KEY_HEADERS = frozenset({b"authorization", b"x-api-key", b"api-key"})
_KEY_LENGTHS = frozenset(map(len, _KEY_HEADERS))
_OWN_ANSWERS = frozenset({OWN, TARGET})
"""Targets that the router itself answers: the liveness check, and reports of outcomes, which have a token of their own."""
_FRAMED = frozenset({b"access-control-allow-origin", b"access-control-allow-credentials", b"access-control-expose-headers"})


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """An admitted request. The lines with the key have been removed from its head."""

    key: str = ""
    """The name of the key, for logs; empty: none was required."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Headers that the response must have besides the replica's."""
    replaces: frozenset[bytes] = frozenset()
    """Headers of the replica's response, in lower case, that are dropped because the router sets them itself."""

    rule: KeyRule | None = None
    """The rule of the key, to check later whether the key is still valid."""

    @property
    def lines(self) -> bytes:
        """The headers as lines of HTTP/1.1."""
        return b"".join(b"%b: %b\r\n" % header for header in self.headers)


ADMITTED = AdmittedRequest()
"""The result for an endpoint without rules."""


class RequestAdmission:
    """The access rules of one plan. Counts of keys and failed attempts are carried over from the previous rules."""

    ring: ApiKeyRing | None
    """The keys; None if none are required."""
    failed: FailedAttempts

    def __init__(
        self,
        plan: RoutePlan,
        now: Callable[[], float],
        wall: Callable[[], float],
        *,
        exposed: bool,
        before: RequestAdmission | None = None,
    ) -> None:
        """Create the rules. `now`: monotonic clock; `wall`: clock by which keys expire; `exposed`: reachable beyond loopback."""
        access = plan.access or AccessRules()
        self._access = access
        self._now = now
        self._wall = wall
        self._open = {path.encode() for path in access.open_paths}
        self._site = _site(plan, exposed=exposed)
        self._cors = CorsPolicy(access.cors) if access.cors is not None else None
        self._tls = access.tls is not None
        previous = before.ring if before is not None else None
        self.ring = ApiKeyRing(plan.service, access.keys, previous, now()) if access.keys_required else None
        self.failed = before.failed if before is not None else FailedAttempts()

    def admit(
        self, head: RequestHead, peer: bytes, raw: bytes | None = None, *, secure: bool = False
    ) -> RequestRefusal | AdmittedRequest:
        """Admit a request, or return its refusal.

        `peer` is the sender's address, `raw` the head as received, where there is one (HTTP/1.1), `secure` whether the
        connection uses TLS. The lines with the key are removed from the `head` of an admitted request, so that they reach no
        replica.
        """
        if secure:
            head.forwarded[b"x-forwarded-proto"] = b"https"
        elif self._tls:
            return RequestRefusal(426, "this endpoint accepts TLS only: use https://", close=True)
        origin = head.value_of(b"origin") if self._cors is not None else None
        refused = self._check_site(head, raw, origin)
        if refused is not None:
            return refused
        cors = self._cors
        if cors is not None and origin is not None and _is_preflight(head):
            return cors.preflight(head, origin)
        headers = cors.answer_headers(origin) if cors is not None else ()
        replaced = _FRAMED if cors is not None else frozenset()
        if self.ring is None or head.target in _OWN_ANSWERS or self._is_open(head):
            return AdmittedRequest("", headers, replaced) if cors is not None else ADMITTED
        key = self._key_of(head, peer, self.ring)
        if isinstance(key, RequestRefusal):
            return _with(key, headers)
        return self._let_in(key, headers, replaced)

    def _let_in(
        self, key: LimitedApiKey, headers: tuple[tuple[bytes, bytes], ...], replaced: frozenset[bytes]
    ) -> RequestRefusal | AdmittedRequest:
        now = self._now()
        if not key.rule.rate:
            key.last_used = now
            return AdmittedRequest(key.rule.name, headers, replaced, key.rule)
        wait = key.take(now)
        headers = (*headers, *_rate_headers(key))
        if wait:
            reason = f"the API key {key.rule.name} may send {rate.show(key.rule.rate)}"
            return RequestRefusal(429, reason, ((b"retry-after", b"%d" % math.ceil(wait)), *headers))
        key.last_used = now
        return AdmittedRequest(key.rule.name, headers, replaced, key.rule)

    @property
    def ends_by_itself(self) -> bool:
        """Whether a key has an expiry, so that requests in flight must be checked again."""
        return self.ring is not None and self.ring.expires

    def still_admits(self, admitted: AdmittedRequest) -> bool:
        """Return whether the key of a request in flight is still valid. True if it has no key or none is required."""
        ring, rule = self.ring, admitted.rule
        return ring is None or rule is None or ring.still_takes(rule, self._wall())

    def _check_site(self, head: RequestHead, raw: bytes | None, origin: bytes | None) -> RequestRefusal | None:
        if self._site is None and not head.upgrades:
            return None
        try:
            # A page whose origin the document names may send any request.
            trusted = origin is not None and self._cors is not None and self._cors.allows(origin)
            if self._site is not None:
                self._site.check(head, raw, trusted=trusted)
            if head.upgrades and not trusted:
                (self._site.check_page if self._site is not None else check_page)(head)
        except BadHeadError as problem:
            return RequestRefusal(problem.status, problem.reason, close=True)
        return None

    def _is_open(self, head: RequestHead) -> bool:
        return head.target in self._open and head.method in (b"GET", b"HEAD")

    def _key_of(self, head: RequestHead, peer: bytes, ring: ApiKeyRing) -> LimitedApiKey | RequestRefusal:
        """Return the valid key of a request, and remove its lines from the head; otherwise return the refusal."""
        values: list[bytes] = []
        lines: list[bytes] = []
        for line in head.lines:
            name, _, value = line.partition(b":")
            if len(name) not in _KEY_LENGTHS or (name := name.lower()) not in _KEY_HEADERS:
                lines.append(line)
                continue
            value = value.strip(b" \t")
            if name == b"authorization":
                scheme, _, value = value.partition(b" ")
                value = value.strip(b" \t") if scheme.lower() == b"bearer" else b""
            values.append(value)
        if len(values) > 1:
            # Two readers could take different values for the key.
            return self._failure(peer, 400, "the request has more than one API key: send one header with one key")
        if not values:
            return self._failure(peer, 401, "an API key is needed: send `Authorization: Bearer KEY` or `X-API-Key: KEY`")
        key = ring.find(values[0], self._wall())
        if isinstance(key, KeyFault):
            return self._failure(peer, 403 if key is KeyFault.OTHER_SERVICE else 401, key.value)
        head.lines = lines
        return key

    def _failure(self, peer: bytes, status: int, reason: str) -> RequestRefusal:
        wait = self.failed.add(peer, self._now())
        if wait:
            retry = (b"retry-after", b"%d" % math.ceil(wait))
            return RequestRefusal(429, "too many requests without a valid API key came from this address", (retry,), close=True)
        headers = ((b"www-authenticate", b'Bearer realm="fairway"'),) if status == 401 else ()
        return RequestRefusal(status, reason, headers)


def make_admission(
    plan: RoutePlan, now: Callable[[], float], wall: Callable[[], float], *, exposed: bool, before: RequestAdmission | None
) -> RequestAdmission | None:
    """Return the rules of a plan; None if every request is admitted, so that admission costs nothing."""
    if plan.access is None and _site(plan, exposed=exposed) is None:
        return None
    return RequestAdmission(plan, now, wall, exposed=exposed, before=before)


def admit_without_rules(head: RequestHead) -> RequestRefusal | AdmittedRequest:
    """Admit any request, except a WebSocket of another site's page."""
    if head.upgrades:
        try:
            check_page(head)
        except BadHeadError as problem:
            return RequestRefusal(problem.status, problem.reason, close=True)
    return ADMITTED


def _site(plan: RoutePlan, *, exposed: bool) -> HostRules | None:
    """Return the host names allowed for the endpoint. Beyond loopback they are checked only if the document names them."""
    if ANY in plan.hosts or ((exposed or not is_loopback(plan.host)) and not plan.hosts):
        return None
    return HostRules(plan.hosts)


def _is_preflight(head: RequestHead) -> bool:
    return head.method == b"OPTIONS" and head.value_of(b"access-control-request-method") is not None


def _rate_headers(key: LimitedApiKey) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"ratelimit-limit", b"%d" % key.burst),
        (b"ratelimit-remaining", b"%d" % key.remaining),
        (b"ratelimit-reset", b"%d" % math.ceil((key.burst - key.remaining) / key.rule.rate)),
    )


def _with(refusal: RequestRefusal, headers: tuple[tuple[bytes, bytes], ...]) -> RequestRefusal:
    return RequestRefusal(refusal.status, refusal.reason, (*refusal.headers, *headers), refusal.close) if headers else refusal
