"""The daemon's part of a protected port: the keys and the certificate of a plan on this machine, and their state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fairway.errors import FairwayError
from fairway.serving.router.access.certificate import read_certificate
from fairway.serving.router.access.key_file import read_keys, write_keys
from fairway.serving.router.access.self_signed import AUTHORITY, CERTIFICATE, KEY, names_of, renew
from fairway.serving.router.access.tls_file import WARN_SECONDS, check_files
from fairway.state.serving.access import ApiKey, PortProtection, TlsRule
from fairway.state.serving.route import RoutePlan

FOLDER = "tls"
"""The folder, beside the plan, of a certificate made by Fairway."""
_COARSE_SECONDS = 600.0
"""A later use of a key is recorded if it is at least this much later, in seconds."""


def protected(plan: RoutePlan, home: Path, now: float) -> RoutePlan:
    """Return the plan with this machine's keys and certificate; a missing self-signed certificate is made."""
    access = plan.access
    if access is None:
        return plan
    tls = access.tls
    if tls is not None and tls.self_signed:
        folder = home / FOLDER
        renew(folder, plan.service, names_of(plan.host, plan.hosts), now)
        tls = TlsRule(str(folder / CERTIFICATE), str(folder / KEY))
    keys = tuple(key.rule for key in read_keys(home)) if access.keys_required else ()
    return replace(plan, access=replace(access, keys=keys, tls=tls))


def renewed(plan: RoutePlan, home: Path, now: float) -> None:
    """Renew the certificate that Fairway made for a plan in force, if it is due."""
    tls = plan.access.tls if plan.access is not None else None
    if tls is not None and tls.certificate == str(home / FOLDER / CERTIFICATE):
        renew(home / FOLDER, plan.service, names_of(plan.host, plan.hosts), now)


def access_state(plan: RoutePlan, home: Path, now: float) -> PortProtection:
    """Return the state of the port's protection. `plan`: the one in force, with paths."""
    access = plan.access
    try:
        keys = len(read_keys(home))
    except FairwayError as problem:
        return PortProtection(problem=str(problem))
    tls = access.tls if access is not None else None
    if tls is None:
        return PortProtection(keys)
    own = tls.certificate == str(home / FOLDER / CERTIFICATE)
    try:
        certificate = read_certificate(Path(tls.certificate))
    except (OSError, ValueError) as problem:
        return PortProtection(keys, tls.certificate, problem=f"the certificate {tls.certificate}: {problem}")
    authority = str(home / FOLDER / AUTHORITY) if own else tls.certificate if certificate.self_issued else ""
    problems = check_files(tls, now)
    remaining = certificate.ends - now
    if not problems and remaining < WARN_SECONDS:
        problems = [f"the certificate {tls.certificate} expires in {max(remaining, 0) / 86400:.0f} days: replace the file"]
    return PortProtection(keys, tls.certificate, authority, certificate.names, certificate.ends, "; ".join(problems))


def note_uses(home: Path, uses: dict[str, float]) -> None:
    """Record when keys were last used, coarsely: the routers' own counts are lost when they end."""
    try:
        keys = read_keys(home)
    except FairwayError:
        return
    updated = with_uses(keys, uses, _COARSE_SECONDS)
    if updated != keys:
        write_keys(home, updated)


def with_uses(keys: tuple[ApiKey, ...], uses: dict[str, float], later: float) -> tuple[ApiKey, ...]:
    """Return the keys with newer times of use, where these are more than `later` seconds after the recorded ones."""
    return tuple(replace(key, used=uses[key.rule.id]) if uses.get(key.rule.id, 0.0) > key.used + later else key for key in keys)
