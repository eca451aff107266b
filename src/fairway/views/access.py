"""How the port of a service is protected, as people see it."""

from __future__ import annotations

import shlex

import msgspec

from fairway.spec.endpoint import Endpoint, is_loopback
from fairway.state.access import AccessState
from fairway.views import phrases


class AccessView(msgspec.Struct, frozen=True):
    """Who may ask, and by which certificate."""

    bind: str = "127.0.0.1"
    public: bool = False
    keys_required: bool = False
    keys: int = 0
    """API keys that are kept."""
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    """Of CORS."""
    tls: bool = False
    certificate: str = ""
    """Its path."""
    authority: str = ""
    """The path of what clients must trust; empty: the usual authorities vouch for the certificate."""
    names: tuple[str, ...] = ()
    """Names and addresses in the certificate."""
    certificate_ends: float | None = None
    warnings: tuple[str, ...] = ()
    """What is wrong or soon will be, each with its fix."""


def access_view(endpoint: Endpoint, state: AccessState, name: str) -> AccessView:
    """The protection that a document asks for, and how it stands."""
    exposed = not is_loopback(endpoint.bind)
    required = endpoint.keys == "required"
    warnings = [state.problem] if state.problem else []
    if required and not state.keys:
        warnings.append(f"there is no API key, so no request is let in: fairway key create {name} --name NAME")
    if exposed and required and not endpoint.tls.on:
        warnings.append("API keys come unencrypted: add `tls`, or put a proxy with TLS in front")
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
    """One line; empty for a service of this machine without rules."""
    if view == AccessView():
        return ""
    parts = [f"listens on {view.bind}", phrases.count(view.keys, "API key") if view.keys_required else "no key needed"]
    if view.tls:
        ends = view.certificate_ends
        left = (
            "" if ends is None else f" (certificate ends in {phrases.age(now, ends)})" if ends > now else " (certificate expired)"
        )
        parts.append(f"TLS{left}")
    if view.hosts:
        parts.append(f"as {', '.join(view.hosts)}")
    if view.origins:
        parts.append(f"pages of {', '.join(view.origins)}")
    return ", ".join(parts)


def reach_sentence(name: str, endpoint: Endpoint, port: int, *, cluster: bool = False) -> str:
    """Who could ask a service, how and where, in words."""
    if cluster:
        where, who = "", "pods of the cluster, and clients of its gateway where a route leads there,"
    else:
        where = f" on {endpoint.bind}, {f'port {port}' if port else 'a free port'}"
        who = _who(endpoint.bind)
    keys = "with an API key of it" if endpoint.keys == "required" else "without a key"
    said = f"{name} would listen{where}{' with TLS' if endpoint.tls.on else ', without TLS'}: {who} could ask {keys}"
    if endpoint.hosts and "*" not in endpoint.hosts:
        said += f", by the names {', '.join(endpoint.hosts)}"
    if endpoint.cors is not None:
        pages = "pages of any origin" if "*" in endpoint.cors.origins else f"pages of {', '.join(endpoint.cors.origins)}"
        said += f"; {pages} could read answers"
    if endpoint.keys == "required" and not endpoint.tls.on and not cluster and not is_loopback(endpoint.bind):
        said += "; the keys would come unencrypted"
    return said


def _who(bind: str) -> str:
    if is_loopback(bind):
        return "programs of this machine alone"
    if bind in ("0.0.0.0", "::"):
        return "every client that reaches this machine, at any of its addresses,"
    return "every client that reaches this address"


def curl_options(view: AccessView, url: str) -> tuple[str, str]:
    """The address to ask, and the options that make `curl` trust the certificate and send the key."""
    options = []
    scheme, _, place = url.partition("://")
    host, _, port = place.rpartition(":")
    named = [name for name in view.names if "*" not in name]
    if view.tls and named and host.strip("[]") not in named:
        # The certificate is for another name, which this machine may not find.
        options.append(f"--connect-to {named[0]}:{port}:{host}:{port}")
        url = f"{scheme}://{named[0]}:{port}"
    if view.authority:
        options.append(f"--cacert {shlex.quote(view.authority)}")
    if view.keys_required:
        options.append('-H "Authorization: Bearer $FAIRWAY_KEY"')
    return url, "".join(f"{option} " for option in options)
