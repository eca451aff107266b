"""Cross-origin requests (CORS): which pages may read responses, and the answers to preflights."""

from __future__ import annotations

from fairway.serving.router.access.refusal import RequestRefusal
from fairway.serving.router.message_head import RequestHead
from fairway.state.serving.access import CorsRule

_ANY = "*"
_USUAL_HEADERS = ("authorization", "content-type", "x-api-key", "api-key", "x-request-id")
"""Headers that a page may send if the document names none."""
_EXPOSED = b"fairway-revision, ratelimit-limit, ratelimit-remaining, ratelimit-reset, retry-after, x-request-id"
_LONGEST = 1024
"""Limit on the bytes of a preflight's list of headers that are read."""


class CorsPolicy:
    """The CORS rule of one service, prepared for lookups."""

    __slots__ = ("_any_header", "_any_origin", "_headers", "_methods", "_origins", "_rule")

    def __init__(self, rule: CorsRule) -> None:
        self._rule = rule
        # With credentials, `*` would let every page act in its visitor's name. Documents with both are refused, and so is it
        # here.
        self._any_origin = _ANY in rule.origins and not rule.credentials
        self._origins = {origin.lower().encode() for origin in rule.origins if origin != _ANY}
        self._methods = {method.upper().encode() for method in rule.methods} | {b"HEAD"}
        headers = rule.headers or _USUAL_HEADERS
        self._any_header = _ANY in headers
        self._headers = sorted(name.lower().encode() for name in headers if name != _ANY)

    def allows(self, origin: bytes) -> bool:
        """Return whether pages of this origin may read responses."""
        return self._any_origin or origin.lower() in self._origins

    def preflight(self, head: RequestHead, origin: bytes) -> RequestRefusal:
        """Return the answer to a browser's preflight."""
        if not self.allows(origin):
            return self._refused(f"the origin {origin[:100].decode('latin-1')} is not one of this endpoint's cors.origins")
        method = head.value_of(b"access-control-request-method") or b""
        if method not in self._methods:
            return self._refused(f"the method {method[:20].decode('latin-1')} is not one of this endpoint's cors.methods")
        requested = _names(head.value_of(b"access-control-request-headers") or b"")
        foreign = [] if self._any_header else [name for name in requested if name not in self._headers]
        if foreign:
            return self._refused(f"the header {foreign[0][:60].decode('latin-1')} is not one of this endpoint's cors.headers")
        allowed = requested if self._any_header else self._headers
        return RequestRefusal(
            204,
            "",
            (
                *self._granted(origin),
                (b"access-control-allow-methods", b", ".join(sorted(self._methods))),
                (b"access-control-allow-headers", b", ".join(allowed)),
                (b"access-control-max-age", b"%d" % self._rule.max_age),
                (b"vary", b"origin, access-control-request-method, access-control-request-headers"),
            ),
        )

    def answer_headers(self, origin: bytes | None) -> tuple[tuple[bytes, bytes], ...]:
        """Return the headers of every response. An origin without permission to read it gets none: its browser hides it."""
        if origin is None or not self.allows(origin):
            return () if self._any_origin else ((b"vary", b"origin"),)
        vary = () if self._any_origin else ((b"vary", b"origin"),)
        return (*self._granted(origin), (b"access-control-expose-headers", _EXPOSED), *vary)

    def _granted(self, origin: bytes) -> tuple[tuple[bytes, bytes], ...]:
        allowed = ((b"access-control-allow-origin", b"*" if self._any_origin else origin),)
        return (*allowed, (b"access-control-allow-credentials", b"true")) if self._rule.credentials else allowed

    @staticmethod
    def _refused(reason: str) -> RequestRefusal:
        return RequestRefusal(403, reason, ((b"vary", b"origin"),))


def _names(text: bytes) -> list[bytes]:
    names = {name.strip(b" \t").lower() for name in text[:_LONGEST].split(b",")} - {b""}
    return sorted(names)
