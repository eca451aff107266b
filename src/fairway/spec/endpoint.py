"""The endpoint of a service: address, TLS, API keys, host names, other origins. One type per field."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from fairway.spec.spec_model import Duration, Name, SpecModel

_HOST_NAME = r"^(\*|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[?[0-9A-Fa-f:.]+\]?)$"
_ORIGIN = r"^(\*|https?://[A-Za-z0-9.:\[\]-]+)$"
_TOKEN = r"^(\*|[A-Za-z0-9!#$%&'+.^_`|~-]+)$"


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        message = (
            "is not an IP address: write for example 127.0.0.1 (this machine only), 0.0.0.0 (all) or an address of this machine"
        )
        raise ValueError(message) from None


def is_loopback(address: str) -> bool:
    """Return whether the address is reachable only from this machine."""
    return ipaddress.ip_address(address).is_loopback


class EndpointTls(SpecModel):
    """The certificate of the service's port. TLS is 1.2 or newer."""

    mode: Literal["none", "self-signed"] = "none"
    """self-signed: Fairway creates and renews a certificate authority and a certificate; clients trust the authority (`curl
    --cacert`)."""
    certificate: Annotated[str, Field(max_length=4096)] = ""
    """Path of a PEM file with the certificate, followed by the chain up to its authority. The file is read again when it
    changes."""
    key: Annotated[str, Field(max_length=4096)] = ""
    """Path of a PEM file with the private key. Only its owner may be able to read it."""
    secret: Name | None = None
    """On a cluster: the name of a Secret of type kubernetes.io/tls in the namespace of the service."""

    @property
    def on(self) -> bool:
        """Whether the port uses TLS."""
        return self.mode != "none" or bool(self.certificate) or self.secret is not None

    @model_validator(mode="after")
    def _one_source(self) -> EndpointTls:
        if bool(self.certificate) != bool(self.key):
            message = "has a certificate without its key, or a key alone; give both: {certificate: FILE, key: FILE}"
            raise ValueError(message)
        if [self.mode != "none", bool(self.certificate), self.secret is not None].count(True) > 1:
            message = "names more than one certificate; keep one of self-signed, {certificate, key} and {secret}"
            raise ValueError(message)
        return self


class EndpointCors(SpecModel):
    """Web pages of other origins that may read responses in a browser (CORS).

    The router answers preflight requests itself, without a key.
    """

    origins: Annotated[tuple[Annotated[str, Field(pattern=_ORIGIN)], ...], Field(min_length=1, max_length=64)]
    """Allowed origins, compared exactly: `https://app.example.org`; or `*` alone for all."""
    methods: tuple[Annotated[str, Field(pattern=r"^[A-Z]{1,20}$")], ...] = ("GET", "POST")
    """HTTP methods that a page may use."""
    headers: Annotated[tuple[Annotated[str, Field(pattern=_TOKEN)], ...], Field(max_length=64)] = ()
    """Request headers that a page may send, or `*` for any; default: authorization, content-type, x-api-key, api-key and
    x-request-id."""
    credentials: bool = False
    """Whether a page may send cookies; cannot be combined with `*`."""
    max_age: Duration = "10m"
    """How long a browser caches the answer to a preflight request."""

    @model_validator(mode="after")
    def _no_credentials_for_all(self) -> EndpointCors:
        if "*" in self.origins and self.credentials:
            message = "lets pages of all origins (`*`) use credentials; name the origins, or leave credentials out"
            raise ValueError(message)
        if "*" in self.origins and len(self.origins) > 1:
            message = "has `*` and other origins; keep `*` alone, or name them"
            raise ValueError(message)
        return self


class ServiceEndpoint(SpecModel):
    """How clients reach a service. By default it listens on this machine only and requires no key."""

    bind: Annotated[str, AfterValidator(_address), Field(max_length=64)] = "127.0.0.1"
    """The address to listen on: 127.0.0.1, 0.0.0.0 or :: for all addresses, or one of this machine's addresses."""
    keys: Literal["none", "required"] = "none"
    """required: every request needs an API key of the service (`fairway key create`); while the service has no keys, every
    request is refused."""
    public: bool = False
    """Allow the service to listen beyond this machine without API keys. Every client that reaches the port may then send
    requests."""
    tls: EndpointTls = EndpointTls()
    """The certificate: `self-signed`, `{certificate: FILE, key: FILE}`, or on a cluster `{secret: NAME}`."""
    hosts: Annotated[tuple[Annotated[str, Field(pattern=_HOST_NAME, max_length=253)], ...], Field(max_length=64)] = ()
    """Host names that clients may use, in addition to localhost; requests for other names are refused with 403. If the service
    listens beyond this machine and the list is empty, any name is accepted."""
    open_paths: Annotated[tuple[Annotated[str, Field(pattern=r"^/[!-~]*$", max_length=1000)], ...], Field(max_length=32)] = (
        "/v2/health/live",
        "/v2/health/ready",
    )
    """Paths that need no key, for GET and HEAD, compared exactly."""
    cors: EndpointCors | None = None
    """Access for web pages of other origins. If not set, browsers let no such page read responses."""

    @model_validator(mode="after")
    def _exposed_on_purpose(self) -> ServiceEndpoint:
        if not is_loopback(self.bind) and self.keys == "none" and not self.public:
            message = (
                f"listens on {self.bind} without API keys, so every client that reaches this machine may send requests; "
                "add `keys: required`, or `public: true` (`fairway serve --public`) if that is intended"
            )
            raise ValueError(message)
        return self
