"""Metric families and their two text formats: Prometheus 0.0.4 and OpenMetrics 1.0."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

TEXT = b"text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = b"application/openmetrics-text; version=1.0.0; charset=utf-8"
_OPENMETRICS_NAME = "application/openmetrics-text"

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]
"""The name of the sample with its suffix (`_bucket`, `_sum`, `_count`), its labels, its value."""

_TO_ESCAPE = re.compile(r'[\\\n"]')


@dataclass(slots=True)
class MetricFamily:
    """All samples of one metric."""

    name: str
    """As in Prometheus text: a counter's name ends with `_total`, unless another project chose the name."""
    kind: str
    """counter, gauge, histogram, summary or untyped."""
    help: str = ""
    samples: list[Sample] = field(default_factory=list)

    def add(self, value: float, *labels: tuple[str, str]) -> None:
        """Append a sample without a suffix."""
        self.samples.append((self.name, labels, value))

    def add_histogram(self, bounds: Sequence[str], counts: Iterable[int], total: float, *labels: tuple[str, str]) -> None:
        """Append the samples of a histogram. `counts` are not cumulative and have one more element than `bounds`."""
        name, cumulative = self.name, 0
        for bound, cumulative in zip([*bounds, "+Inf"], accumulate(counts), strict=True):
            self.samples.append((f"{name}_bucket", (*labels, ("le", bound)), cumulative))
        self.samples.append((f"{name}_sum", labels, total))
        self.samples.append((f"{name}_count", labels, cumulative))


def render(families: Iterable[MetricFamily], *, openmetrics: bool) -> bytes:
    """Render a page. Each family has one HELP and one TYPE line. Sample names are the same in both formats."""
    lines: list[str] = []
    for family in families:
        name, kind = _head(family, openmetrics=openmetrics)
        if family.help:
            lines.append(f"# HELP {name} {_escaped(family.help, quotes=openmetrics)}")
        lines.append(f"# TYPE {name} {kind}")
        lines += [f"{sample}{_shown(labels)} {number(value)}" for sample, labels, value in family.samples]
    if openmetrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode()


def accepts_openmetrics(accept: bytes | None) -> bool:
    """Whether an `Accept` header requests OpenMetrics."""
    return accept is not None and _OPENMETRICS_NAME in accept.decode("latin-1").lower()


def number(value: float) -> str:
    """Format a value, the same in both formats."""
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and abs(value) < 1e15):
        return str(int(value))
    if math.isfinite(value):
        return f"{value:.12g}"
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _head(family: MetricFamily, *, openmetrics: bool) -> tuple[str, str]:
    if not openmetrics:
        return family.name, family.kind
    if family.kind == "counter":
        # A counter of OpenMetrics ends with `_total`. Other projects' names stay as their dashboards expect them.
        return (family.name.removesuffix("_total"), "counter") if family.name.endswith("_total") else (family.name, "unknown")
    return family.name, "unknown" if family.kind == "untyped" else family.kind


def _shown(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in labels) + "}"


def _escaped(text: str, *, quotes: bool) -> str:
    if not _TO_ESCAPE.search(text):
        return text
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text
