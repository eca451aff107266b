"""Releases of a service, as people see them."""

from __future__ import annotations

import msgspec

from fairway.plan.service import guards
from fairway.plan.service.rollout import MIRROR, SHARE
from fairway.state.service import Rollout, RolloutPhase, Service
from fairway.units.card import View
from fairway.views import phrases
from fairway.views.table import Column, Page, table


class PastRelease(msgspec.Struct, frozen=True):
    """A release that is over, or under way."""

    source: int
    target: int
    serves: str
    phase: str
    started: float
    finished: float | None = None
    reason: str = ""


class ReleaseView(View, frozen=True):
    """The release under way, or the last one; and those before."""

    name: str
    phase: str
    """Empty when there never was one."""
    strategy: str
    source: int
    target: int
    serves: str
    """What the new revision serves."""
    part: float
    """The new revision's part of the traffic; of a shadow release before its end, the part that is copied."""
    step: int
    since: float
    started: float
    finished: float | None
    reason: str
    history: tuple[PastRelease, ...] = ()
    findings: tuple[str, ...] = ()
    """What the guards have seen so far, in sentences."""
    copied: bool = False
    """Whether the part is one of copies."""


def release_view(service: Service) -> ReleaseView:
    """Where the release is."""
    rollout = service.rollout
    past = tuple(_past(service, one) for one in (*service.history, *((rollout,) if rollout else ())))
    if rollout is None:
        return ReleaseView(service.key.name, "", service.spec.rollout.strategy, 0, 0, "", 0.0, -1, 0.0, 0.0, None, "", past)
    done = rollout.phase is RolloutPhase.DONE
    return ReleaseView(
        service.key.name,
        rollout.phase,
        service.spec.rollout.strategy,
        rollout.source,
        rollout.target,
        _serves(service, rollout.target),
        1.0 if done else rollout.marks.get(SHARE, 0.0) or rollout.marks.get(MIRROR, 0.0),
        rollout.step,
        rollout.step_since,
        rollout.started,
        rollout.finished,
        rollout.reason,
        past,
        tuple(guards.findings(service, rollout)),
        not done and not rollout.marks.get(SHARE, 0.0) and bool(rollout.marks.get(MIRROR, 0.0)),
    )


def release_line(view: ReleaseView) -> str:
    """The release in one line."""
    if not view.phase:
        return f"{view.name} was never released"
    way = f"r{view.source} -> r{view.target}" if view.source else f"r{view.target}"
    what = "the requests as copies" if view.copied else "the traffic"
    part = f", {view.part:.0%} of {what}" if view.phase in (RolloutPhase.STEPPING, RolloutPhase.PAUSED) else ""
    reason = f": {view.reason}" if view.reason else ""
    return f"{way} ({view.serves}), {view.strategy}, {view.phase}{part}{reason}"


def release_text(view: ReleaseView, now: float, page: Page) -> str:
    """Where the release is, and what comes next."""
    text = f"{page.paint(view.name, 'bold')}: {release_line(view)}\n"
    if view.finished is not None:
        return text + f"over {phrases.ago(view.finished, now)}, after {phrases.span(view.finished - view.started)}\n"
    if view.phase:
        text += f"started {phrases.ago(view.started, now)}, in this step for {phrases.span(now - view.since)}\n"
    return text + "".join(f"  {sentence}\n" for sentence in view.findings)


def history_text(view: ReleaseView, now: float, page: Page) -> str:
    """The releases so far, the newest first."""
    rows = [
        [
            f"r{one.source} -> r{one.target}" if one.source else f"r{one.target}",
            one.serves,
            one.phase,
            phrases.age(one.started, now),
            phrases.span(one.finished - one.started) if one.finished is not None else "-",
            one.reason,
        ]
        for one in reversed(view.history)
    ]
    columns = (
        Column("RELEASE"), Column("SERVES"), Column("PHASE", phase=True), Column("AGE", right=True), Column("TOOK", right=True),
        Column("REASON", loose=True),
    )  # fmt: skip
    return table(columns, rows, page) if rows else f"{view.name} was never released\n"


def _past(service: Service, rollout: Rollout) -> PastRelease:
    serves = _serves(service, rollout.target)
    return PastRelease(rollout.source, rollout.target, serves, rollout.phase, rollout.started, rollout.finished, rollout.reason)


def _serves(service: Service, number: int) -> str:
    revision = service.revision(number)
    return (revision.model or " ".join(revision.spec.command)) if revision else ""
