"""Detect metrics in printed lines: the formats of Hugging Face, Keras, Lightning, tqdm, XGBoost and of most training loops.

A name of the known list must be followed by a number. Anything else is text: a time, a version, an argument. Standard library
only, Python 3.9 and newer.
"""

from __future__ import annotations

import math
import re

from fairway.runtime.metric_detection.step_counter import StepCounter

REACH = 2048
"""Number of bytes of a line that are examined; a longer line is a dump."""
_MOST_NAMES = 50
"""Maximum number of metrics per line."""

_WORDS = (
    r"loss(?:es)?|losses|acc(?:uracy)?(?:@?[0-9]{1,2})?|top[-_@]?[15]|f1|f1[-_]score|auc|auroc|roc_auc|precision|recall"
    r"|perplexity|ppl|bleu|rouge(?:[12l]|lsum)|wer|cer|mse|mae|rmse|r2|m?iou|dice|nll|elbo|kl|bpc|bpb|reward|ep_rew_mean"
    r"|grad_norm|gnorm|logloss|lr|learning_rate"
)
_SPLIT = r"train|training|val|valid|validation|test|eval|evaluation|dev"
_AVERAGE = r"avg\.?|average|mean|running|total|final|best"
_NUMBER = r"[-+]?(?:[0-9]{1,15}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(?:e[-+]?[0-9]{1,3})?"
_METRIC = re.compile(
    # Not the end of a longer word, of a flag or of a path.
    r"(?<![\w@./-])[\"']?(?P<name>"
    rf"(?:(?:{_SPLIT})[ ](?:set[ ])?)?(?:(?:{_AVERAGE})[ ])?(?:[a-z][a-z0-9]{{0,30}}[_/]){{0,4}}"
    rf"(?:{_WORDS})(?:_[a-z0-9]{{1,20}}){{0,3}}"
    r")[\"']?"
    r"(?:(?P<sign>[ ]{0,3}[:=][ \t]{0,8})|[ \t]{1,4})"
    r"(?:(?:tensor|array|(?:np|numpy)\.float[0-9]{2})\()?[\"']?"
    rf"(?P<value>{_NUMBER}|[-+]?(?:nan|inf(?:inity)?)\b)"
    # Not the beginning of a version, a time, a path or a word. A fraction is handled separately.
    r"(?:/(?P<whole>[0-9]{1,12})|[ ]?(?P<percent>%))?(?![\w/:]|[.-][0-9a-z])",
    re.IGNORECASE,
)
_TOKENS = (
    rb"loss|acc|top|f1|auc|auroc|precision|recall|perplexity|ppl|bleu|rouge"
    rb"|wer|cer|mse|mae|r2|iou|dice|nll|elbo|kl|bpc|bpb|rew|norm"
)
_HINT = re.compile(_TOKENS)
"""Matches lower-case lines that may hold a metric. Only literals, because it is tried on every line."""
_LIKELY = re.compile(
    rb"(?:" + _TOKENS + rb")[\w@-]{0,40}[\"']?[ ]{0,3}[:= \t][ \t]{0,8}[\"']?(?:[-+.0-9]|nan|inf|tensor|array|np\.|numpy)"
)
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\b\0]")
_SPLIT_FIRST = re.compile(rf"\W{{0,8}}(?P<split>{_SPLIT})(?:[ ]set)?\b(?![ ]?(?:_|/))", re.IGNORECASE)
_BOOSTED = re.compile(r"(?:\[[0-9:]{8}\] )?\[(?P<round>[0-9]{1,9})\]\t")
_BOOSTED_METRIC = re.compile(
    rf"(?P<name>[A-Za-z][\w.]{{0,60}}-[a-z][\w@.-]{{0,40}}):(?P<value>{_NUMBER})(?:\+{_NUMBER})?(?=\s|$)", re.I
)
_PREFIX = {"valid": "val", "validation": "val", "evaluation": "eval", "train": "", "training": ""}
_SETTINGS = re.compile(r"(?:lr|learning_rate)$")
_FRACTIONS = re.compile(r"(?:acc|accuracy|precision|recall|top)")
_MAY_BREAK = re.compile(r"(?:loss|norm)")

Found = tuple["int | None", dict[str, float]]
"""The step, if one is printed, and the metrics."""


class MetricLineReader:
    """Reads the lines of one log in order. Information of earlier lines, such as the epoch, applies to later ones.

    A line takes a bounded time, whatever it holds. A number that does not follow a known name is never a metric.
    """

    def __init__(self) -> None:
        self._steps = StepCounter()
        self._waiting: dict[str, float] = {}

    def read(self, line: bytes) -> list[Found]:
        """Return the points completed by this line: none, its own, or a waiting one as well."""
        if not (self._waiting or b"poch" in line or b"%|" in line or line.startswith(b"[") or _may_measure(line)):
            return []
        text = _ESCAPE.sub("", line[:REACH].decode("utf-8", "replace"))
        if not text.strip():
            # A progress bar is erased before it is drawn again.
            return []
        points = self._settled(text) if self._waiting else []
        metrics, step = _boosted(text)
        if not metrics:
            metrics = _metrics(text)
            step = self._steps.read(text, bool(metrics))
        if metrics and step is None and self._steps.drawn and text.lstrip().startswith("{"):
            # Hugging Face prints no step with its metrics; the progress bar that follows has it.
            self._waiting = metrics
        elif metrics:
            points.append((step, metrics))
        return points

    def flush(self, tail: bytes = b"") -> list[Found]:
        """Return the metrics that still wait for the progress bar after them.

        `tail` is the unfinished line, which may be that bar.
        """
        return self._settled(tail.decode("utf-8", "replace")) if self._waiting else []

    def _settled(self, bar: str) -> list[Found]:
        step = self._steps.of_bar(bar, training=not any(name.startswith("eval") for name in self._waiting))
        waited, self._waiting = self._waiting, {}
        return [(step, waited)]


def key_of(name: str) -> str:
    """Return the common key of names of one metric from several sources: `train/loss`, `train_loss` and `loss` are the same."""
    key = name.lower().replace("/", "_").replace("-", "_")
    return key[6:] if key.startswith("train_") else key


def _metrics(text: str) -> dict[str, float]:
    first = _SPLIT_FIRST.match(text)
    split = _spelt(first["split"].lower()) if first else ""
    metrics: dict[str, float] = {}
    for match in _METRIC.finditer(text):
        value = _value(match)
        if value is not None and len(metrics) < _MOST_NAMES:
            metrics.setdefault(_name(match["name"], split), value)
    # A learning rate alone is a printed setting, not a measurement.
    return metrics if any(not _SETTINGS.search(name) for name in metrics) else {}


def _boosted(text: str) -> tuple[dict[str, float], int | None]:
    r"""Parse `[12]\ttrain-rmse:0.51\teval-rmse:0.49`, the format of XGBoost."""
    match = _BOOSTED.match(text)
    if match is None:
        return {}, None
    return {metric["name"]: float(metric["value"]) for metric in _BOOSTED_METRIC.finditer(text, match.end())}, int(match["round"])


def _may_measure(line: bytes) -> bool:
    small = line[:REACH].lower()
    hint = _HINT.search(small)
    return hint is not None and _LIKELY.search(small, hint.start()) is not None


def _spelt(split: str) -> str:
    return _PREFIX.get(split, split)


def _name(written: str, split: str) -> str:
    """Return the metric's name: `Test set: Average loss` is `test_loss`; `val loss` is `val_loss`; `Loss` is `loss`."""
    words = [word.rstrip(".") for word in written.lower().split(" ") if word not in ("set",)]
    metric = words[-1]
    own_split = _spelt(words[0]) if len(words) > 1 and re.fullmatch(_SPLIT, words[0]) else None
    if own_split is None and re.match(rf"(?:{_SPLIT})[_/]", metric):
        own_split = ""
    prefix = split if own_split is None else own_split
    return f"{prefix}_{metric}" if prefix else metric


def _value(match: re.Match[str]) -> float | None:
    text, whole, name = match["value"], match["whole"], match["name"].lower()
    number = float(text)
    if whole is not None:
        return number / int(whole) if _FRACTIONS.search(name) and 0 <= number <= int(whole) != 0 else None
    if match["sign"] is None and "." not in text and "e" not in text.lower() and not match["percent"]:
        # `recall 2020`: without a sign between them, only a number with a decimal point is meant as a value.
        return None
    if not math.isfinite(number):
        # A loss that became NaN must be shown; `nan` after other words may be anything.
        return number if match["sign"] is not None and _MAY_BREAK.search(name) else None
    return number
