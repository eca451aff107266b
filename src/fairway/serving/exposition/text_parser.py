"""Parses Prometheus text 0.0.4. The page may come from any server, so its size is bounded and every line is checked."""

from __future__ import annotations

import re

from fairway.serving.exposition.metric_family import Labels, MetricFamily

MOST_SAMPLES = 20_000
"""Maximum samples of one page; a page with more is refused."""
MOST_BYTES = 4 * 1024 * 1024
"""Maximum bytes of one page."""

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})?[ \t]+(\S+)(?:[ \t]+-?[0-9]+)?[ \t]*")
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\\n]|\\.)*)"[ \t]*(?:,|$)')
_ESCAPED = re.compile(r"\\(.)")
_KINDS = frozenset({"counter", "gauge", "histogram", "summary", "untyped"})
_SUFFIXES = ("_bucket", "_count", "_sum", "_created")


def read(page: bytes) -> list[MetricFamily]:
    """Parse a page into families. Raises `ValueError` that names the malformed line."""
    if len(page) > MOST_BYTES:
        message = f"the page has {len(page)} bytes, at most {MOST_BYTES} are read"
        raise ValueError(message)
    families: dict[str, MetricFamily] = {}
    count = 0
    for line in page.decode("utf-8", "replace").split("\n"):
        if not line.strip():
            continue
        if line.startswith("#"):
            _comment(line, families)
            continue
        count += 1
        if count > MOST_SAMPLES:
            message = f"the page has more than {MOST_SAMPLES} samples"
            raise ValueError(message)
        _sample(line, families)
    return list(families.values())


def _comment(line: str, found: dict[str, MetricFamily]) -> None:
    words = line.split(None, 3)
    if len(words) < 3 or words[1] not in ("HELP", "TYPE") or not re.fullmatch(_NAME, words[2]):
        return
    family = found.setdefault(words[2], MetricFamily(words[2], "untyped"))
    rest = words[3] if len(words) > 3 else ""
    if words[1] == "HELP":
        family.help = _ESCAPED.sub(_plain, rest.rstrip("\r"))
    elif rest.strip() in _KINDS:
        family.kind = rest.strip()


def _sample(line: str, found: dict[str, MetricFamily]) -> None:
    match = _SAMPLE.fullmatch(line.rstrip("\r"))
    if match is None:
        message = f"the line {line[:80]!r} is not a sample"
        raise ValueError(message)
    name, labels, value = match.groups()
    try:
        figure = float(value)
    except ValueError:
        message = f"the line {line[:80]!r} has no number"
        raise ValueError(message) from None
    _family_of(name, found).samples.append((name, _labels(labels, line) if labels else (), figure))


def _family_of(name: str, found: dict[str, MetricFamily]) -> MetricFamily:
    """Return the family of a sample, by its name or by its name without the suffix of a histogram or summary."""
    if name in found:
        return found[name]
    for suffix in _SUFFIXES:
        base = found.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
        if base is not None and base.kind in ("histogram", "summary"):
            return base
    return found.setdefault(name, MetricFamily(name, "untyped"))


def _labels(text: str, line: str) -> Labels:
    labels: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None:
            message = f"the line {line[:80]!r} has malformed labels"
            raise ValueError(message)
        labels.append((match[1], _ESCAPED.sub(_plain, match[2]) if "\\" in match[2] else match[2]))
        position = match.end()
    return tuple(labels)


def _plain(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
