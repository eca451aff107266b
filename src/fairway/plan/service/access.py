"""Access rules of a service, derived from its document."""

from __future__ import annotations

from fairway.spec.endpoint import EndpointTls
from fairway.state.service import ServiceState
from fairway.state.serving.access import POD_TLS_FOLDER, AccessRules, CorsRule, TlsRule
from fairway.units import quantity


def access_of(service: ServiceState) -> AccessRules | None:
    """Return the access rules; None where the document has none.

    Keys, and the paths of generated certificates, are added by the router.
    """
    endpoint = service.spec.endpoint
    if endpoint.keys == "none" and endpoint.cors is None and not endpoint.tls.on:
        return None
    cors = endpoint.cors
    return AccessRules(
        keys_required=endpoint.keys == "required",
        open_paths=endpoint.open_paths,
        cors=CorsRule(cors.origins, cors.methods, cors.headers, cors.credentials, int(quantity.seconds(cors.max_age)))
        if cors is not None
        else None,
        tls=_tls(endpoint.tls, service.origin.folder) if endpoint.tls.on else None,
    )


def _tls(tls: EndpointTls, folder: str) -> TlsRule:
    if tls.secret is not None:
        return TlsRule(f"{POD_TLS_FOLDER}/tls.crt", f"{POD_TLS_FOLDER}/tls.key")
    return TlsRule(_from(folder, tls.certificate), _from(folder, tls.key)) if tls.certificate else TlsRule()


def _from(folder: str, path: str) -> str:
    """Return an absolute path: a relative path of the document starts at the folder of the user's command."""
    return path if path.startswith("/") else f"{folder.rstrip('/')}/{path}"


def service_url(service: ServiceState) -> str:
    """Return the URL of the service on this machine; empty until it has a port."""
    if not service.port:
        return ""
    endpoint = service.spec.endpoint
    host = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1"}.get(endpoint.bind, endpoint.bind)
    return f"{'https' if endpoint.tls.on else 'http'}://{f'[{host}]' if ':' in host else host}:{service.port}"
