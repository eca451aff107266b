"""The daemon's part of a protected port: which keys and which certificate a plan means on this machine, and how they stand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fairway.errors import FairwayError
from fairway.serving.router.access.certificate import read_certificate
from fairway.serving.router.access.key_file import read_keys, write_keys
from fairway.serving.router.access.self_signed import AUTHORITY, CERTIFICATE, KEY, names_of, renew
from fairway.serving.router.access.tls import WARN_SECONDS, check_files
from fairway.state.access import AccessState, ApiKey, TlsRule
from fairway.state.route import RoutePlan

FOLDER = "tls"
"""The folder, beside the plan, of a certificate that Fairway makes."""
_COARSE_SECONDS = 600.0
"""A later use of a key is noted when it is so much later."""


def protected(plan: RoutePlan, home: Path, now: float) -> RoutePlan:
    """The plan with the keys and the certificate of this machine; a self-signed one is made where there is none."""
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
    """Renew the certificate that Fairway made for a plan in force, when it is time."""
    tls = plan.access.tls if plan.access is not None else None
    if tls is not None and tls.certificate == str(home / FOLDER / CERTIFICATE):
        renew(home / FOLDER, plan.service, names_of(plan.host, plan.hosts), now)


def access_state(plan: RoutePlan, home: Path, now: float) -> AccessState:
    """How the port stands. `plan`: the one in force, with paths."""
    access = plan.access
    try:
        keys = len(read_keys(home))
    except FairwayError as problem:
        return AccessState(problem=str(problem))
    tls = access.tls if access is not None else None
    if tls is None:
        return AccessState(keys)
    own = tls.certificate == str(home / FOLDER / CERTIFICATE)
    try:
        found = read_certificate(Path(tls.certificate))
    except (OSError, ValueError) as problem:
        return AccessState(keys, tls.certificate, problem=f"the certificate {tls.certificate}: {problem}")
    authority = str(home / FOLDER / AUTHORITY) if own else tls.certificate if found.self_issued else ""
    wrong = check_files(tls, now)
    left = found.ends - now
    if not wrong and left < WARN_SECONDS:
        wrong = [f"the certificate {tls.certificate} expires in {max(left, 0) / 86400:.0f} days: replace the file"]
    return AccessState(keys, tls.certificate, authority, found.names, found.ends, "; ".join(wrong))


def note_uses(home: Path, uses: dict[str, float]) -> None:
    """Keep when keys were used last, coarsely: what routers count is lost when they end."""
    try:
        keys = read_keys(home)
    except FairwayError:
        return
    noted = with_uses(keys, uses, _COARSE_SECONDS)
    if noted != keys:
        write_keys(home, noted)


def with_uses(keys: tuple[ApiKey, ...], uses: dict[str, float], later: float) -> tuple[ApiKey, ...]:
    """The keys with the times of their last use, where these are so much later than those that are known."""
    return tuple(replace(key, used=uses[key.rule.id]) if uses.get(key.rule.id, 0.0) > key.used + later else key for key in keys)
