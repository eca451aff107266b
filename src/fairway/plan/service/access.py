"""The rules of access of a service, as its document means them."""

from __future__ import annotations

from fairway.spec.endpoint import EndpointTls
from fairway.state.access import POD_TLS_FOLDER, Access, CorsRule, TlsRule
from fairway.state.service import Service
from fairway.units import quantity


def access_of(service: Service) -> Access | None:
    """The rules; None where the document asks for none. Keys, and paths of certificates that are made, come with the router."""
    endpoint = service.spec.endpoint
    if endpoint.keys == "none" and endpoint.cors is None and not endpoint.tls.on:
        return None
    cors = endpoint.cors
    return Access(
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
    """A path of the document: relative ones start where the command was typed."""
    return path if path.startswith("/") else f"{folder.rstrip('/')}/{path}"


def service_url(service: Service) -> str:
    """Where this machine asks the service; empty until it listens."""
    if not service.port:
        return ""
    endpoint = service.spec.endpoint
    host = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1"}.get(endpoint.bind, endpoint.bind)
    return f"{'https' if endpoint.tls.on else 'http'}://{f'[{host}]' if ':' in host else host}:{service.port}"
