"""The client methods for API keys, written once for both clients: see `verb.py`."""

from __future__ import annotations

import json

from fairway.sdk import wire
from fairway.sdk.decoding import decode
from fairway.sdk.verb import Call, Steps, verb
from fairway.views.key import KeyList, KeyMade, KeyView


class KeyVerbs:
    """Methods of both clients for the API keys of services."""

    namespace: str

    @verb
    def create_key(self, service: str, name: str, *, rate: str = "", expires: str = "") -> Steps[KeyMade]:
        """Create an API key of a service: `rate` such as 100/s, `expires` such as 30d. Only this call returns the key."""
        body = json.dumps({"name": name, "rate": rate, "expires": expires}).encode()
        return decode((yield self._keys("POST", service, body=body)), KeyMade)

    @verb
    def keys(self, service: str) -> Steps[tuple[KeyView, ...]]:
        """Return the API keys of a service, by name; the keys themselves are not stored."""
        return decode((yield self._keys("GET", service)), KeyList).keys

    @verb
    def revoke_key(self, service: str, name: str) -> Steps[None]:
        """Revoke an API key. It is refused once this returns."""
        yield self._keys("DELETE", service, f"/{wire.quote(name)}")

    def _keys(self, method: str, service: str, tail: str = "", body: bytes = b"") -> Call:
        return Call(method, f"/v1/services/{wire.quote(service)}/keys{tail}", {"namespace": self.namespace}, body)
