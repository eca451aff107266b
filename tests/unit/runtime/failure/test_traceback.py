"""Equal mistakes get equal names."""

from __future__ import annotations

import pytest

from fairway.runtime.failure.cause import find


def digest(text: str) -> str:
    return find(text).digest


PLAIN = """epoch 1
Traceback (most recent call last):
  File "/code/train.py", line 10, in <module>
    main()
  File "/code/train.py", line 7, in main
    raise ValueError("bad <object at 0x7f00>")
ValueError: bad <object at 0x7f00>
"""


def test_no_traceback_has_no_name() -> None:
    assert digest("all is well\nValueError: not really\n") == ""
    assert digest("") == ""
    assert digest("Traceback (most recent call last):\n") == ""


@pytest.mark.parametrize(
    "same",
    [
        PLAIN.replace("0x7f00", "0x1234"),
        PLAIN.replace("epoch 1", "epoch 2"),
        PLAIN.replace("\n", "\r\n"),
        "\n".join(f"[rank0]: {line}" for line in PLAIN.splitlines()),
        PLAIN.replace("ValueError: bad", "\x1b[1;35mValueError\x1b[0m: bad"),
        PLAIN.replace("    main()", "    main()\n    ~~~~^^"),
        PLAIN + "some last words of a library\n",
    ],
)
def test_the_same_mistake_has_the_same_name(same: str) -> None:
    assert digest(same) == digest(PLAIN) != ""


@pytest.mark.parametrize(
    "other",
    [
        PLAIN.replace("ValueError", "KeyError"),
        PLAIN.replace("line 7", "line 8"),
        PLAIN.replace("in main", "in other"),
        PLAIN.replace("/code/train.py", "/code/model.py"),
    ],
)
def test_another_mistake_has_another_name(other: str) -> None:
    assert digest(other) not in ("", digest(PLAIN))


def test_the_last_traceback_counts() -> None:
    first = PLAIN.replace("ValueError", "KeyError")
    chained = f"{first}\nDuring handling of the above exception, another exception occurred:\n\n{PLAIN}"
    assert digest(chained) == digest(PLAIN)
