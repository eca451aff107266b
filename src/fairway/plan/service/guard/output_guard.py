"""Guards of outputs: answers with non-finite numbers, and answers to the same request that differ.

Replicas count their answers with NaN or infinity; the counts of both revisions are compared like errors. In a shadow release
the router compares the answers to copies with those that clients received.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairway.plan.service.guard import guard_evidence
from fairway.plan.service.guard.guard_evidence import GuardVerdict, Marks
from fairway.plan.service.measurement import ServiceSample
from fairway.spec.service import OutputsGuard
from fairway.state.service import ServiceRollout, ServiceState, revision_of
from fairway.state.serving.load import OutputComparison, ReplicaLoad
from fairway.units import number, quantity

NON_FINITE = "non_finite"
_PAIRED = "outputs.non_finite"
"""Mark: compared answers with NaN or infinity where the client's answer has a finite number."""
_DIFFER = "outputs"
_CLASSES = "outputs.classes"
_SHOWN = ("relaid", "incomparable", "skipped")


def count(
    marks: Marks,
    service: ServiceState,
    rollout: ServiceRollout,
    pair: tuple[ServiceSample, ServiceSample],
    found: OutputComparison,
) -> None:
    """Count the outputs between two samples. `found`: the comparison of answers to copies between them."""
    guard = service.spec.rollout.guard
    allowed = quantity.percent(guard.non_finite)
    mine, old = (_non_finite(*pair, number) for number in (rollout.target, rollout.source))
    if any((*mine, *old)):
        accepted = max(allowed, guard_evidence.part(marks, f"{NON_FINITE}.old"))
        guard_evidence.count_beside(marks, NON_FINITE, mine, old, allowed, same=True, alone=accepted)
    if guard.outputs is None:
        return
    # If both were equal, each would equally often have a finite number where the other has none.
    lost, restored = (found.non_finite, found.compared), (found.restored, found.compared)
    guard_evidence.count_beside(marks, _PAIRED, lost, restored, allowed, same=True, alone=allowed)
    guard_evidence.count_above(marks, _DIFFER, (found.differing, found.compared), quantity.percent(guard.outputs.differ))
    guard_evidence.count_above(marks, _CLASSES, (found.reclassified, found.classified), quantity.percent(guard.outputs.classes))
    for name in _SHOWN:
        guard_evidence.add(marks, f"{_DIFFER}.{name}", getattr(found, name))
    if found.compared:
        marks[f"{_DIFFER}.largest"] = max(guard_evidence.mark(marks, f"{_DIFFER}.largest"), number.finite(found.largest) or 0.0)


def _non_finite(before: ServiceSample, after: ServiceSample, revision: int) -> guard_evidence.Count:
    """Return the answers with NaN or infinity, and all successful ones, of a revision's replicas between two samples."""
    events = total = 0
    for name, now in after.replicas.items():
        earlier = before.replicas.get(name)
        if earlier is None or revision_of(name) != revision:
            continue
        events += max(0, now.non_finite - earlier.non_finite)
        total += max(0, _succeeded(now) - _succeeded(earlier))
    return min(events, total), total


def _succeeded(load: ReplicaLoad) -> int:
    return load.served - load.client_errors


def compared(marks: Mapping[str, float]) -> float:
    """Return the number of compared answers so far."""
    return guard_evidence.mark(marks, f"{_DIFFER}.n")


def without_number(service: ServiceState, rollout: ServiceRollout, marks: Marks, sure: float = 1.0) -> GuardVerdict | None:
    """Return a verdict if too many answers contain NaN or infinity, by the replicas' own counts."""
    allowed = service.spec.rollout.guard.non_finite
    if not guard_evidence.is_too_often(marks, NON_FINITE, f"{NON_FINITE}_allowed", allowed, sure):
        return None
    return GuardVerdict(NON_FINITE, f"{_non_finite_in_words(rollout, marks)}; allowed is {allowed}")


def verdict(service: ServiceState, rollout: ServiceRollout, marks: Marks) -> GuardVerdict | None:
    """Return the first verdict on outputs. Non-finite numbers are checked first, since they also cause differing answers."""
    guard = service.spec.rollout.guard
    non_finite = without_number(service, rollout, marks)
    if non_finite or guard.outputs is None:
        return non_finite
    if guard_evidence.is_too_often(marks, _PAIRED, f"{_PAIRED}_allowed", guard.non_finite):
        return GuardVerdict(NON_FINITE, f"{_paired_in_words(rollout, marks)}; allowed is {guard.non_finite}")
    if guard_evidence.is_above(marks, _CLASSES, guard.outputs.classes):
        text = f"{_classes_in_words(rollout, marks)}; allowed is {guard.outputs.classes}"
        return GuardVerdict("outputs", f"{text}; {_differ_in_words(rollout, marks, guard.outputs)}")
    if guard_evidence.is_above(marks, _DIFFER, guard.outputs.differ):
        text = f"{_differ_in_words(rollout, marks, guard.outputs)}; allowed is {guard.outputs.differ}"
        classes = f"; {_classes_in_words(rollout, marks)}" if guard_evidence.mark(marks, f"{_CLASSES}.k") else ""
        return GuardVerdict("outputs", f"{text}{classes}")
    return None


def findings(service: ServiceState, rollout: ServiceRollout) -> tuple[str, ...]:
    """Return the current findings, one sentence each."""
    marks, guard = rollout.marks, service.spec.rollout.guard
    sentences: list[str] = []
    if guard_evidence.mark(marks, f"{NON_FINITE}.k"):
        sure = guard_evidence.sureness(marks, NON_FINITE)
        sentences.append(f"non-finite: {_non_finite_in_words(rollout, marks)}; allowed is {guard.non_finite}{sure}")
    outputs = guard.outputs
    if outputs is None or not rollout.source:
        return tuple(sentences)
    sure = _sureness(marks, _DIFFER, outputs.differ)
    sentences.append(f"outputs: {_differ_in_words(rollout, marks, outputs)}; allowed is {outputs.differ}{sure}")
    if guard_evidence.mark(marks, f"{_CLASSES}.n"):
        sure = _sureness(marks, _CLASSES, outputs.classes)
        sentences.append(f"outputs: {_classes_in_words(rollout, marks)}; allowed is {outputs.classes}{sure}")
    if guard_evidence.mark(marks, f"{_PAIRED}.k"):
        sentences.append(f"outputs: {_paired_in_words(rollout, marks)}; allowed is {guard.non_finite}")
    not_compared = _not_compared(marks)
    return (*sentences, f"outputs: not compared: {not_compared}") if not_compared else tuple(sentences)


def _sureness(marks: Mapping[str, float], name: str, allowed: str) -> str:
    """Return the text about a test's progress; empty where all answers may differ."""
    return guard_evidence.sureness(marks, name) if quantity.percent(allowed) < 1.0 else ""


def _non_finite_in_words(rollout: ServiceRollout, marks: Mapping[str, float]) -> str:
    old = f"{NON_FINITE}.old"
    mine = f"{guard_evidence.part(marks, NON_FINITE):.1%} of r{rollout.target}'s answers have NaN or infinity in an output"
    other = f"{guard_evidence.part(marks, old):.1%} of r{rollout.source}'s"
    return f"{mine} ({guard_evidence.said(marks, NON_FINITE)}), {other} ({guard_evidence.said(marks, old)})"


def _paired_in_words(rollout: ServiceRollout, marks: Mapping[str, float]) -> str:
    mine = f"{guard_evidence.part(marks, _PAIRED):.1%} of r{rollout.target}'s answers have NaN or infinity"
    return f"{mine} where r{rollout.source}'s answers to the same requests are finite ({guard_evidence.said(marks, _PAIRED)})"


def _classes_in_words(rollout: ServiceRollout, marks: Mapping[str, float]) -> str:
    mine = f"{guard_evidence.part(marks, _CLASSES):.1%} of r{rollout.target}'s answers name another class"
    return f"{mine} than r{rollout.source}'s to the same requests ({guard_evidence.said(marks, _CLASSES)})"


def _differ_in_words(rollout: ServiceRollout, marks: Mapping[str, float], guard: OutputsGuard) -> str:
    share = guard_evidence.part(marks, _DIFFER)
    mine = f"{share:.1%} of r{rollout.target}'s answers differ from r{rollout.source}'s to the same requests"
    relaid = guard_evidence.mark(marks, f"{_DIFFER}.relaid")
    layout = f", {relaid:.0f} by the names, types or shapes of their outputs" if relaid else ""
    largest = guard_evidence.mark(marks, f"{_DIFFER}.largest")
    distance = f"; values differ by at most {largest:.3g} of the largest in their output, tolerance {guard.tolerance}"
    return f"{mine} ({guard_evidence.said(marks, _DIFFER)} compared{layout}{distance if largest else ''})"


def _not_compared(marks: Mapping[str, float]) -> str:
    incomparable, skipped = (guard_evidence.mark(marks, f"{_DIFFER}.{name}") for name in ("incomparable", "skipped"))
    parts = [f"{incomparable:.0f} answers in a form that is not comparable"] if incomparable else []
    return ", ".join([*parts, f"{skipped:.0f} that came too fast"] if skipped else parts)
