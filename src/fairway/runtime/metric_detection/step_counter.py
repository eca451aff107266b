"""The step to which a printed line belongs: from `step`, `iter`, `batch`, `epoch`, and from progress bars.

Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import re

_COUNT = r"[0-9]{1,15}"
_STEP = re.compile(
    rf"(?<![\w.-])[\"']?(?P<word>global[_ ]step|steps?|iter(?:ation|s)?|it|batch|round)[\"']?[ ]?[:=#]?[ ]{{0,8}}"
    rf"\[?[ ]{{0,8}}(?P<at>{_COUNT})(?:[ ]?/[ ]?(?P<of>{_COUNT}))?(?![\w%]|[.:][0-9])",
    re.IGNORECASE,
)
_EPOCH = re.compile(
    rf"(?<![\w.-])[\"']?epoch[\"']?[ ]?[:=#]?[ ]{{0,8}}\[?[ ]{{0,8}}(?P<at>{_COUNT})(?:[ ]?/[ ]?{_COUNT})?(?![\w%]|\.[0-9])",
    re.IGNORECASE,
)
_POSITION = re.compile(rf"\[[ ]{{0,8}}(?P<at>{_COUNT})[ ]?/[ ]?(?P<of>{_COUNT})\b")
"""`[640/60000 (1%)]` and `[  10/5005]`, after an epoch."""
_TQDM = re.compile(rf"\|[ ]{{0,4}}(?P<at>{_COUNT})/(?P<of>{_COUNT}) \[[0-9:?]+<")
_KERAS = re.compile(rf"^\s{{0,8}}(?P<at>{_COUNT})/(?P<of>{_COUNT})\s+(?:\[[=>.]|[━╸ ]*\s?[0-9]+[smh]|- [0-9]+[smh]|━)")


class StepCounter:
    """Counts steps across epochs: the position within an epoch and the length of an epoch give one increasing number."""

    def __init__(self) -> None:
        self.last: int | None = None
        """The newest step."""
        self._epoch: int | None = None
        self._first = 0
        self._fine = False
        self._bar = 0
        self.drawn = False
        """Whether a progress bar of tqdm has been seen."""

    def read(self, text: str, measured: bool) -> int | None:
        """Return the step of a line; `measured`: the line holds metrics. A line without metrics may still announce an epoch."""
        epoch = _EPOCH.search(text)
        if epoch:
            self._enter(int(epoch["at"]))
        bar = _TQDM.search(text)
        self.drawn = self.drawn or bar is not None
        if not measured:
            return None
        position = bar or _KERAS.match(text)
        if position is None:
            position = _STEP.search(text) or (_POSITION.search(text, epoch.end()) if epoch else None)
        if position is not None:
            return self._reached(position, epoch is not None)
        if epoch is None:
            # It follows other lines of the same epoch, such as the line of a validation.
            return self.last if self._epoch is not None else None
        if not self._fine:
            self.last = self._epoch
        return self.last

    def of_bar(self, text: str, training: bool) -> int | None:
        """Return the step of the progress bar over all steps, if the line draws it.

        That bar is the one that followed the first metrics of `training`.
        """
        bar = _TQDM.search(text)
        if bar is None or (int(bar["of"]) != self._bar if self._bar else not training):
            return self.last
        self._bar, self.last = int(bar["of"]), int(bar["at"])
        return self.last

    def _enter(self, epoch: int) -> None:
        if self._epoch is None:
            self._first = min(epoch, 1)
        self._epoch = epoch

    def _reached(self, place: re.Match[str], in_epoch: bool) -> int | None:
        at, of = int(place["at"]), place["of"]
        self._fine = True
        if self._epoch is not None and of is not None:
            at += max(0, self._epoch - self._first) * int(of)
        elif in_epoch and of is None and "word" in place.re.groupindex and place["word"].lower() == "batch":
            # Batch numbers restart in every epoch, and the number of batches is not printed.
            return None
        self.last = at
        return at
