"""Conditions over metrics: `accuracy >= 0.98 and step > 500 or not (loss > 2)`.

    either   = both {"or" both}
    both     = negation {"and" negation}
    negation = "not" negation | "(" either ")" | comparison
    comparison = operand (">=" | "<=" | ">" | "<" | "==" | "!=") operand     with a metric on at least one side

A metric that has not been reported yet, or is not a number, makes its comparison unknown (`None`). The whole condition is unknown
only if that matters: true or unknown is true, false and unknown is false. So a loss that became NaN never ends a run as a
success.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

TEXT_LIMIT = 1000
DEPTH_LIMIT = 50

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.])"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_./-]*)"
    r"|(?P<sign>>=|<=|==|!=|>|<|\(|\))"
    r"|(?P<odd>&&|\|\||=>|=<|=|!|\S))"
)
_SIGNS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq, "!=": operator.ne}
)
_INSTEAD = {"=>": ">=", "=<": "<=", "&&": "and", "||": "or", "=": "==", "!": "not"}


class ConditionError(ValueError):
    """Raised when a condition cannot be parsed. The text is `what is wrong; the fix`; `column` counts from 1."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(message)
        self.column = column


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """Two operands, each the name of a metric or a number."""

    left: str | float
    sign: str
    right: str | float

    def evaluate(self, metrics: Mapping[str, float]) -> bool | None:
        """Return whether the comparison holds; None when a metric is missing or not a number."""
        left, right = (metrics.get(side) if isinstance(side, str) else side for side in (self.left, self.right))
        # NaN is the one value that does not equal itself.
        if left is None or right is None or left != left or right != right:
            return None
        return _SIGNS[self.sign](left, right)

    @property
    def metrics(self) -> frozenset[str]:
        """Names of the metrics that the condition refers to."""
        return frozenset(side for side in (self.left, self.right) if isinstance(side, str))


@dataclass(frozen=True, slots=True)
class NegatedCondition:
    """True when its part is false."""

    part: Condition

    def evaluate(self, metrics: Mapping[str, float]) -> bool | None:
        """Return whether the condition holds; None when unknown."""
        value = self.part.evaluate(metrics)
        return None if value is None else not value

    @property
    def metrics(self) -> frozenset[str]:
        """Names of the metrics that the condition refers to."""
        return self.part.metrics


@dataclass(frozen=True, slots=True)
class AllConditions:
    """True when every part holds."""

    parts: tuple[Condition, ...]

    def evaluate(self, metrics: Mapping[str, float]) -> bool | None:
        """Return whether the condition holds; None when unknown."""
        values = [part.evaluate(metrics) for part in self.parts]
        return False if False in values else None if None in values else True

    @property
    def metrics(self) -> frozenset[str]:
        """Names of the metrics that the condition refers to."""
        return frozenset().union(*(part.metrics for part in self.parts))


@dataclass(frozen=True, slots=True)
class AnyCondition:
    """True when at least one part holds."""

    parts: tuple[Condition, ...]

    def evaluate(self, metrics: Mapping[str, float]) -> bool | None:
        """Return whether the condition holds; None when unknown."""
        values = [part.evaluate(metrics) for part in self.parts]
        return True if True in values else None if None in values else False

    @property
    def metrics(self) -> frozenset[str]:
        """Names of the metrics that the condition refers to."""
        return frozenset().union(*(part.metrics for part in self.parts))


Condition = MetricComparison | NegatedCondition | AllConditions | AnyCondition


def parse(text: str) -> Condition:
    """Parse a condition. Raises `ConditionError`."""
    if len(text) > TEXT_LIMIT:
        message = f"is longer than {TEXT_LIMIT} characters; make it shorter"
        raise ConditionError(message, 1)
    parser = _ConditionParser(text)
    condition = parser.either(0)
    parser.finish()
    return condition


def goals(wanted: Condition) -> dict[str, str]:
    """Return the metrics that the condition needs high (`max`) or low (`min`).

    Only metrics that are compared with numbers, and in one direction only, are included.
    """
    directions: dict[str, set[str]] = {}
    parts: list[Condition] = [wanted]
    for part in parts:
        if isinstance(part, AllConditions | AnyCondition):
            parts.extend(part.parts)
        elif isinstance(part, MetricComparison) and part.sign[0] in "<>" and len(part.metrics) == 1:
            (name,) = part.metrics
            high = (part.sign[0] == ">") == (part.left == name)
            directions.setdefault(name, set()).add("max" if high else "min")
    return {name: ways.pop() for name, ways in directions.items() if len(ways) == 1 and name != "step"}


class _ConditionParser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0
        self._end = len(text) + 1

    def either(self, depth: int) -> Condition:
        parts = [self._both(depth)]
        while self._take("or"):
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else AnyCondition(tuple(parts))

    def finish(self) -> None:
        if self._next < len(self._tokens):
            _, text, column = self._tokens[self._next]
            message = f"has `{text}` where the condition should end; join comparisons with `and` or `or`"
            raise ConditionError(message, column)

    def _both(self, depth: int) -> Condition:
        parts = [self._negation(depth)]
        while self._take("and"):
            parts.append(self._negation(depth))
        return parts[0] if len(parts) == 1 else AllConditions(tuple(parts))

    def _negation(self, depth: int) -> Condition:
        if depth > DEPTH_LIMIT:
            message = f"is nested more than {DEPTH_LIMIT} deep; make it simpler"
            raise ConditionError(message, self._column())
        if self._take("not"):
            return NegatedCondition(self._negation(depth + 1))
        if self._take("("):
            condition = self.either(depth + 1)
            if not self._take(")"):
                message = "has a ( that is not closed; add )"
                raise ConditionError(message, self._column())
            return condition
        return self._comparison()

    def _comparison(self) -> Condition:
        column = self._column()
        left, sign, right = self._operand(), self._sign(), self._operand()
        if not isinstance(left, str) and not isinstance(right, str):
            message = "compares two numbers; name a metric, as in accuracy >= 0.98"
            raise ConditionError(message, column)
        return MetricComparison(left, sign, right)

    def _operand(self) -> str | float:
        column = self._column()
        kind, text = self._pop()
        if kind == "number":
            return float(text)
        if kind == "name" and text not in ("and", "or", "not"):
            return text
        message = (
            f"has {f'`{text}`' if text else 'nothing'} where a metric or a number should be; write for example accuracy >= 0.98"
        )
        raise ConditionError(message, column)

    def _sign(self) -> str:
        column = self._column()
        _, text = self._pop()
        if text in _SIGNS:
            return text
        message = f"has {f'`{text}`' if text else 'nothing'} where a comparison should be; use one of {' '.join(_SIGNS)}"
        raise ConditionError(message, column)

    def _take(self, word: str) -> bool:
        if self._next < len(self._tokens) and self._tokens[self._next][1] == word:
            self._next += 1
            return True
        return False

    def _pop(self) -> tuple[str, str]:
        if self._next >= len(self._tokens):
            return "end", ""
        kind, text, _ = self._tokens[self._next]
        self._next += 1
        return kind, text

    def _column(self) -> int:
        return self._tokens[self._next][2] if self._next < len(self._tokens) else self._end


def _tokens(text: str) -> list[tuple[str, str, int]]:
    """Return the kind, text and column of each token."""
    tokens = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "odd"
        word, column = match[kind], match.start(kind) + 1
        if kind == "odd":
            instead = _INSTEAD.get(word)
            message = f"has `{word}`, which is not valid here; {f'write {instead}' if instead else 'remove it'}"
            raise ConditionError(message, column)
        tokens.append((kind, word, column))
    return tokens
