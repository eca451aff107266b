"""Compare the signatures of two model versions: names, types and shapes of inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fairway.errors import RefusedError
from fairway.state.model import ModelSignature, TensorSpec


@dataclass(frozen=True, slots=True)
class SignatureChange:
    """One input or output that differs."""

    text: str
    """`input image: FP32[any, 784] -> FP32[any, 1, 28, 28]`."""
    breaks: bool
    """Whether requests accepted before may be refused, or answers may lack content that they had."""


def changes(before: ModelSignature, after: ModelSignature) -> tuple[SignatureChange, ...]:
    """Return the differences between two signatures, inputs first. Unspecified parts are no difference.

    A removed input or output, a new input, and another type, rank or length break clients. A new output does not, nor does a
    length that was fixed and is now arbitrary.
    """
    return (
        *_compared("input", before.inputs, after.inputs),
        *_compared("output", before.outputs, after.outputs),
    )


def check(before: str, after: str, found: Sequence[SignatureChange]) -> None:
    """Raise `RefusedError` when one of the changes between two model versions breaks clients."""
    breaking = [change.text for change in found if change.breaks]
    if breaking:
        message = f"{after} would break clients of {before}: {'; '.join(breaking)}"
        fix = (
            "register a version with the same inputs and outputs, or allow the change with --allow-signature-change "
            "(`rollout.allow_signature_change: true` in a document)"
        )
        raise RefusedError(message, fix=fix)


def _compared(what: str, before: Sequence[TensorSpec], after: Sequence[TensorSpec]) -> Iterator[SignatureChange]:
    if not before or not after:
        return
    old, new = ({spec.name: spec for spec in side} for side in (before, after))
    is_input = what == "input"
    for name in dict.fromkeys([*old, *new]):
        if name not in new:
            yield SignatureChange(f"{what} {name}: {_shown(old[name])} -> gone", breaks=True)
        elif name not in old:
            yield SignatureChange(f"{what} {name}: none -> {_shown(new[name])}", breaks=is_input)
        elif _differ(old[name], new[name]):
            is_break = _breaks(old[name], new[name], is_input=is_input)
            yield SignatureChange(f"{what} {name}: {_shown(old[name])} -> {_shown(new[name])}", breaks=is_break)


def _differ(old: TensorSpec, new: TensorSpec) -> bool:
    """Return whether both differ; an empty type or shape is unspecified."""
    is_other_type = old.datatype and new.datatype and old.datatype != new.datatype
    return bool(is_other_type or (old.shape and new.shape and old.shape != new.shape))


def _breaks(old: TensorSpec, new: TensorSpec, *, is_input: bool) -> bool:
    if old.datatype and new.datatype and old.datatype != new.datatype:
        return True
    if not old.shape or not new.shape:
        return False
    if len(old.shape) != len(new.shape):
        return True
    return any(_narrows(before, after, is_input=is_input) for before, after in zip(old.shape, new.shape, strict=True))


def _narrows(before: int, after: int, *, is_input: bool) -> bool:
    """Return whether a length that a client used may be refused, or one that it relied on has changed."""
    if before == after or after < 0:
        return False
    return before >= 0 or is_input


def _shown(spec: TensorSpec) -> str:
    return f"{spec.datatype or '?'}[{', '.join('any' if length < 0 else str(length) for length in spec.shape)}]"
