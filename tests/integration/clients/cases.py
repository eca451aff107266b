"""Cases of one client: what each calls, which methods and options that covers, and the expected result.

The files `*_cases.py` run inside the environment `clients`, which has the real clients and nothing of Fairway. They import their
client when they run, so that the tests can list the cases without it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

try:
    import pytest
except ImportError:  # in the environment of the clients
    pytest = None  # type: ignore[assignment,unused-ignore]

HONOURED, REFUSED = "honoured", "refused"
SHARES = pytest.StashKey[list[str]]() if pytest is not None else None
"""Lines of the table at the end of the tests."""


@dataclass(frozen=True)
class Case:
    """One call, or a few related ones."""

    name: str
    run: Callable[[Any], None]
    covers: tuple[str, ...]
    """`method` or `method.option` of the client."""
    outcome: str = HONOURED
    """Whether the server performs the request; otherwise it refuses it with a reason."""


class Cases:
    """The list of one client."""

    def __init__(self) -> None:
        self.all: dict[str, Case] = {}

    def add(self, name: str, run: Callable[[Any], None], *covers: str, outcome: str = HONOURED) -> None:
        assert name not in self.all, name
        self.all[name] = Case(name, run, covers, outcome)

    def __call__(self, *covers: str, outcome: str = HONOURED) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
        """Decorator: add the function as a case with the function's name."""

        def keep(run: Callable[[Any], None]) -> Callable[[Any], None]:
            self.add(run.__name__.strip("_"), run, *covers, outcome=outcome)
            return run

        return keep


def refused(call: Callable[[], Any], kinds: Any, *words: str) -> None:
    """Assert that the call fails with an error of the client that contains these words."""
    try:
        found = call()
    except kinds as error:
        text = str(error)
        assert all(word in text for word in words), text
    else:
        raise AssertionError(f"not refused: {found!r}")


def same(found: Any, wanted: Any) -> None:
    """Assert that both are equal, and show both if not."""
    assert found == wanted, f"{found!r} where {wanted!r} is expected"


def cases_of(module: str) -> dict[str, Case]:
    """The cases of a client, by name."""
    cases: Cases = importlib.import_module(module).CASES
    return cases.all
