"""Views of a service's releases."""

from __future__ import annotations

import msgspec

from fairway.plan.service.guard import rollout_guard
from fairway.plan.service.rollout import MIRROR, SHARE
from fairway.state.service import RolloutPhase, ServiceRollout, ServiceState
from fairway.units.notebook_card import NotebookView
from fairway.views.text import phrase
from fairway.views.text.table import Column, TextPage, table


class ReleaseHistoryEntry(msgspec.Struct, frozen=True):
    """A finished or current release in the history."""

    source: int
    target: int
    serves: str
    phase: str
    started: float
    finished: float | None = None
    reason: str = ""


class ReleaseView(NotebookView, frozen=True):
    """The current or last release, with the history."""

    name: str
    phase: str
    """Empty if there never was a release."""
    strategy: str
    source: int
    target: int
    serves: str
    """The model version or command of the new revision."""
    part: float
    """The new revision's fraction of the traffic; for a shadow release in progress, the fraction that is mirrored."""
    step: int
    since: float
    started: float
    finished: float | None
    reason: str
    history: tuple[ReleaseHistoryEntry, ...] = ()
    findings: tuple[str, ...] = ()
    """The findings of the guards so far, in sentences."""
    copied: bool = False
    """Whether `part` is a fraction of mirrored requests."""


def release_view(service: ServiceState) -> ReleaseView:
    """Return the view of the service's release."""
    rollout = service.rollout
    past = tuple(_past(service, entry) for entry in (*service.history, *((rollout,) if rollout else ())))
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
        tuple(rollout_guard.findings(service, rollout)),
        not done and not rollout.marks.get(SHARE, 0.0) and bool(rollout.marks.get(MIRROR, 0.0)),
    )


def release_line(view: ReleaseView) -> str:
    """Return the release in one line."""
    if not view.phase:
        return f"{view.name} was never released"
    revisions = f"r{view.source} -> r{view.target}" if view.source else f"r{view.target}"
    requests = "the requests as copies" if view.copied else "the traffic"
    part = f", {view.part:.0%} of {requests}" if view.phase in (RolloutPhase.STEPPING, RolloutPhase.PAUSED) else ""
    reason = f": {view.reason}" if view.reason else ""
    return f"{revisions} ({view.serves}), {view.strategy}, {view.phase}{part}{reason}"


def release_text(view: ReleaseView, now: float, page: TextPage) -> str:
    """Return the state of the release, its times and the findings of its guards."""
    text = f"{page.paint(view.name, 'bold')}: {release_line(view)}\n"
    if view.finished is not None:
        return text + f"over {phrase.ago(view.finished, now)}, after {phrase.span(view.finished - view.started)}\n"
    if view.phase:
        text += f"started {phrase.ago(view.started, now)}, at this step for {phrase.span(now - view.since)}\n"
    return text + "".join(f"  {sentence}\n" for sentence in view.findings)


def history_text(view: ReleaseView, now: float, page: TextPage) -> str:
    """Return a table of all releases, newest first."""
    rows = [
        [
            f"r{release.source} -> r{release.target}" if release.source else f"r{release.target}",
            release.serves,
            release.phase,
            phrase.age(release.started, now),
            phrase.span(release.finished - release.started) if release.finished is not None else "-",
            release.reason,
        ]
        for release in reversed(view.history)
    ]
    columns = (
        Column("RELEASE"), Column("SERVES"), Column("PHASE", phase=True), Column("AGE", right=True), Column("TOOK", right=True),
        Column("REASON", loose=True),
    )  # fmt: skip
    return table(columns, rows, page) if rows else f"{view.name} was never released\n"


def _past(service: ServiceState, rollout: ServiceRollout) -> ReleaseHistoryEntry:
    serves = _serves(service, rollout.target)
    return ReleaseHistoryEntry(
        rollout.source, rollout.target, serves, rollout.phase, rollout.started, rollout.finished, rollout.reason
    )


def _serves(service: ServiceState, number: int) -> str:
    revision = service.revision(number)
    return (revision.model or " ".join(revision.spec.command)) if revision else ""
