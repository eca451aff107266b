"""The checks of the other files must be able to fail."""

from __future__ import annotations

import pytest
from gang import Note, check_gang

TOGETHER: list[Note] = [
    {"rank": 0, "world_size": 2, "samples": [0, 2], "weights": "a"},
    {"rank": 1, "world_size": 2, "samples": [1, 3], "weights": "a"},
]


def test_a_gang_passes() -> None:
    check_gang(TOGETHER, 2, range(4))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"world_size": 1}, "number of peers"),
        ({"rank": 0}, "missing or there twice"),
        ({"samples": [0, 1, 3]}, "used by two ranks"),
        ({"samples": []}, "had no samples"),
        ({"samples": [1]}, "never used"),
        ({"weights": "b"}, "different weights"),
    ],
)
def test_what_is_no_gang_fails(change: Note, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_gang([TOGETHER[0], {**TOGETHER[1], **change}], 2, range(4))


def test_a_lost_rank_fails() -> None:
    with pytest.raises(AssertionError, match="missing"):
        check_gang(TOGETHER[:1], 2, range(4))
