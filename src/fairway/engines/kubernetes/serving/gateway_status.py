"""Interprets the observed state of gateways and their verdicts on Fairway's routes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairway.engines.kubernetes.serving.gateway_route import ClusterGateway, is_ip

Found = Mapping[str, Any]

GROUP = "gateway.networking.k8s.io"


def features(gateway_class: Found | None) -> frozenset[str] | None:
    """Return the optional features that a class lists, or None. Older APIs list names, newer ones objects."""
    listed = (gateway_class or {}).get("status", {}).get("supportedFeatures", ())
    names = frozenset(feature if isinstance(feature, str) else feature.get("name", "") for feature in listed)
    return names or None


def gateway(body: Found, can: frozenset[str] | None, namespace: Found, host: str) -> ClusterGateway | str:
    """Return the gateway for services of a namespace with this host name; or a message why it cannot take them."""
    metadata, spec, status = body["metadata"], body.get("spec", {}), body.get("status", {})
    name = f"{metadata['namespace']}/{metadata['name']}"
    addresses = [address["value"] for address in status.get("addresses") or () if is_ip(address["value"])]
    if not addresses:
        return f"gateway {name} has no IP address yet"
    not_ready = _false(status.get("conditions"), "Programmed")
    if not_ready:
        return f"gateway {name} is not ready: {not_ready}"
    refusals = []
    for listener in spec.get("listeners", ()):
        refusal = _refusal(listener, metadata["namespace"], namespace, host)
        if not refusal:
            return ClusterGateway(metadata["namespace"], metadata["name"], addresses[0], listener["port"], listener["name"], can)
        refusals.append(f"listener {listener['name']} {refusal}")
    return f"gateway {name} does not accept the route: {'; '.join(refusals)}"


def secured(body: Found, namespace: Found, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the listeners that terminate TLS with a certificate and take a namespace's routes for one of these hosts."""
    home = body["metadata"]["namespace"]
    return tuple(
        listener["name"]
        for listener in body.get("spec", {}).get("listeners", ())
        if _ends_tls(listener) and any(not _unfit(listener, home, namespace, host) for host in hosts)
    )


def _ends_tls(listener: Found) -> bool:
    tls = listener.get("tls") or {}
    return (
        listener.get("protocol") == "HTTPS" and tls.get("mode", "Terminate") == "Terminate" and bool(tls.get("certificateRefs"))
    )


def asks_for_labels(body: Found) -> bool:
    """Return whether the gateway selects the namespaces of routes by label."""
    allowed_routes = [item.get("allowedRoutes") or {} for item in body.get("spec", {}).get("listeners", ())]
    return any((item.get("namespaces") or {}).get("from") == "Selector" for item in allowed_routes)


def verdict(route: Found, by: ClusterGateway) -> str | None:
    """Return the gateway's verdict on a route: empty when it is in force, else the reason; None while there is none yet."""
    parents = [entry for entry in route.get("status", {}).get("parents", ()) if _is_of(entry, by)]
    generation = route["metadata"].get("generation", 0)
    verdict_text: str | None = None
    for parent in parents:
        conditions = {entry["type"]: entry for entry in parent.get("conditions", ())}
        accepted = conditions.get("Accepted")
        if accepted is None or any(entry.get("observedGeneration", 0) < generation for entry in conditions.values()):
            continue
        verdict_text = (
            _false(conditions.values(), "Accepted")
            or _false(conditions.values(), "ResolvedRefs")
            or _partial(conditions.get("PartiallyInvalid"))
        )
        if not verdict_text:
            return ""
    return verdict_text


def leads_to(route: Found, service: str) -> bool:
    """Return whether a route points to this Service."""
    return any(backend["name"] == service for rule in route["spec"].get("rules", ()) for backend in rule.get("backendRefs") or ())


def kept_whole(asked: Found, answered: Found) -> bool:
    """Return whether the API server kept the fractions of mirrored requests: an older Gateway API drops unknown fields."""

    def parts(body: Found) -> list[Any]:
        filters = [rule_filter for rule in body["spec"]["rules"] for rule_filter in rule.get("filters", ())]
        return [rule_filter["requestMirror"].get("fraction") for rule_filter in filters if "requestMirror" in rule_filter]

    return parts(asked) == parts(answered)


def _refusal(listener: Found, home: str, namespace: Found, host: str) -> str:
    """Return why a plain HTTP listener takes no route of a namespace for this host; empty when it does."""
    if listener.get("protocol") != "HTTP":
        return f"is for {listener.get('protocol')}, not for plain HTTP"
    return _unfit(listener, home, namespace, host)


def _unfit(listener: Found, home: str, namespace: Found, host: str) -> str:
    """Return the same regardless of the listener's protocol."""
    allowed = listener.get("allowedRoutes") or {}
    kinds = allowed.get("kinds") or ()
    if kinds and not any((kind.get("group", GROUP), kind["kind"]) == (GROUP, "HTTPRoute") for kind in kinds):
        return "accepts no HTTPRoute"
    if not _admits(allowed.get("namespaces") or {}, home, namespace):
        return f"accepts no route from the namespace {namespace['metadata']['name']} (allowedRoutes)"
    hostname = listener.get("hostname") or ""
    if hostname and hostname != host and not (hostname.startswith("*.") and host.endswith(hostname[1:])):
        return f"is for {hostname}, not for {host}"
    return ""


def _admits(rule: Found, home: str, namespace: Found) -> bool:
    metadata = namespace["metadata"]
    match rule.get("from", "Same"):
        case "All":
            return True
        case "Same":
            return bool(metadata["name"] == home)
        case "Selector":
            return _selects(rule.get("selector") or {}, metadata.get("labels") or {})
        case _:
            return False


def _selects(selector: Found, labels: Found) -> bool:
    match_labels = selector.get("matchLabels") or {}
    return match_labels.items() <= labels.items() and all(
        _holds(expression, labels) for expression in selector.get("matchExpressions") or ()
    )


def _holds(rule: Found, labels: Found) -> bool:
    key, values = rule["key"], rule.get("values") or ()
    match rule["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels


def _is_of(parent: Found, by: ClusterGateway) -> bool:
    ref = parent.get("parentRef", {})
    return (ref.get("name"), ref.get("namespace"), ref.get("sectionName", "")) == (by.name, by.namespace, by.listener)


def _false(conditions: Any, kind: str) -> str:
    """Return why a condition is false; empty when it is true or not reported."""
    for condition in conditions or ():
        if condition["type"] == kind and condition["status"] == "False":
            return f"{condition.get('reason', kind)}: {condition.get('message') or 'no message'}"
    return ""


def _partial(condition: Found | None) -> str:
    return f"{condition.get('reason')}: {condition.get('message')}" if condition and condition["status"] == "True" else ""
