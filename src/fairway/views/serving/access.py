"""Views of the access protection of a service's port."""

from __future__ import annotations

import shlex

import msgspec

from fairway.spec.endpoint import ServiceEndpoint, is_loopback
from fairway.state.serving.access import PortProtection
from fairway.views.text import phrase


class AccessView(msgspec.Struct, frozen=True):
    """The clients that may send requests, and the certificate."""

    bind: str = "127.0.0.1"
    public: bool = False
    keys_required: bool = False
    keys: int = 0
    """Number of API keys."""
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    """Allowed origins of CORS."""
    tls: bool = False
    certificate: str = ""
    """Path of the certificate."""
    authority: str = ""
    """Path of the authority that clients must trust; empty if a public authority issued the certificate."""
    names: tuple[str, ...] = ()
    """Names and addresses in the certificate."""
    certificate_ends: float | None = None
    warnings: tuple[str, ...] = ()
    """Present or upcoming problems, each with its fix."""


def access_view(endpoint: ServiceEndpoint, state: PortProtection, name: str) -> AccessView:
    """Return the protection that a document requests, with its current state."""
    exposed = not is_loopback(endpoint.bind)
    required = endpoint.keys == "required"
    warnings = [state.problem] if state.problem else []
    if required and not state.keys:
        warnings.append(f"there is no API key, so every request is refused: fairway key create {name} --name NAME")
    if exposed and required and not endpoint.tls.on:
        warnings.append("API keys are sent unencrypted: add `tls`, or put a proxy with TLS in front")
    return AccessView(
        endpoint.bind,
        endpoint.public,
        required,
        state.keys,
        endpoint.hosts,
        endpoint.cors.origins if endpoint.cors is not None else (),
        endpoint.tls.on,
        state.certificate,
        state.authority,
        state.names,
        state.ends or None,
        tuple(warnings),
    )


def access_text(view: AccessView, now: float) -> str:
    """Return one line; empty for a service with the default protection, reachable only from this machine."""
    if view == AccessView():
        return ""
    parts = [f"listens on {view.bind}", phrase.count(view.keys, "API key") if view.keys_required else "no key required"]
    if view.tls:
        ends = view.certificate_ends
        remaining = (
            "" if ends is None else f" (certificate ends in {phrase.age(now, ends)})" if ends > now else " (certificate expired)"
        )
        parts.append(f"TLS{remaining}")
    if view.hosts:
        parts.append(f"as {', '.join(view.hosts)}")
    if view.origins:
        parts.append(f"pages of {', '.join(view.origins)}")
    return ", ".join(parts)


def reach_sentence(name: str, endpoint: ServiceEndpoint, port: int, *, cluster: bool = False) -> str:
    """Return a sentence that says which clients could send requests to a service, how and where."""
    if cluster:
        location, clients = "", "pods of the cluster, and clients of its gateway where a route leads there,"
    else:
        location = f" on {endpoint.bind}, {f'port {port}' if port else 'a free port'}"
        clients = _who(endpoint.bind)
    keys = "with one of its API keys" if endpoint.keys == "required" else "without a key"
    sentence = (
        f"{name} would listen{location}{' with TLS' if endpoint.tls.on else ', without TLS'}: "
        f"{clients} could send requests {keys}"
    )
    if endpoint.hosts and "*" not in endpoint.hosts:
        sentence += f", with the host names {', '.join(endpoint.hosts)}"
    if endpoint.cors is not None:
        pages = "pages of any origin" if "*" in endpoint.cors.origins else f"pages of {', '.join(endpoint.cors.origins)}"
        sentence += f"; {pages} could read replies"
    if endpoint.keys == "required" and not endpoint.tls.on and not cluster and not is_loopback(endpoint.bind):
        sentence += "; the keys would be sent unencrypted"
    return sentence


def _who(bind: str) -> str:
    if is_loopback(bind):
        return "only programs on this machine"
    if bind in ("0.0.0.0", "::"):
        return "every client that reaches this machine, at any of its addresses,"
    return "every client that reaches this address"


def curl_options(view: AccessView, url: str) -> tuple[str, str]:
    """Return the URL to request, and the options with which `curl` trusts the certificate and sends the key."""
    options = []
    scheme, _, authority = url.partition("://")
    host, _, port = authority.rpartition(":")
    names = [name for name in view.names if "*" not in name]
    if view.tls and names and host.strip("[]") not in names:
        # The certificate is for another name, which this machine may not be able to resolve.
        options.append(f"--connect-to {names[0]}:{port}:{host}:{port}")
        url = f"{scheme}://{names[0]}:{port}"
    if view.authority:
        options.append(f"--cacert {shlex.quote(view.authority)}")
    if view.keys_required:
        options.append('-H "Authorization: Bearer $FAIRWAY_KEY"')
    return url, "".join(f"{option} " for option in options)
