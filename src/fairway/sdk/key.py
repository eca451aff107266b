"""The client methods for API keys, written once for both clients: see `call.py`."""

from __future__ import annotations

import json

from fairway.sdk.method.call import ApiCall, Steps, client_method
from fairway.sdk.method.reply import decode
from fairway.sdk.transport import http
from fairway.views.serving.key import KeyList, KeyView, NewKeyView


class KeyMethods:
    """Methods of both clients for the API keys of services."""

    namespace: str

    @client_method
    def create_key(self, service: str, name: str, *, rate: str = "", expires: str = "") -> Steps[NewKeyView]:
        """Create an API key of a service: `rate` such as 100/s, `expires` such as 30d. Only this call returns the key."""
        body = json.dumps({"name": name, "rate": rate, "expires": expires}).encode()
        return decode((yield self._keys("POST", service, body=body)), NewKeyView)

    @client_method
    def keys(self, service: str) -> Steps[tuple[KeyView, ...]]:
        """Return the API keys of a service, by name; the keys themselves are not stored."""
        return decode((yield self._keys("GET", service)), KeyList).keys

    @client_method
    def revoke_key(self, service: str, name: str) -> Steps[None]:
        """Revoke an API key. It is refused once this returns."""
        yield self._keys("DELETE", service, f"/{http.quote(name)}")

    def _keys(self, method: str, service: str, tail: str = "", body: bytes = b"") -> ApiCall:
        return ApiCall(method, f"/v1/services/{http.quote(service)}/keys{tail}", {"namespace": self.namespace}, body)
