"""Names and runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.units import names


@pytest.mark.parametrize("good", ["a", "mnist", "mnist-2", "a" * names.NAME_LIMIT])
def test_good_names(good):
    assert names.check_name(good) == good


@pytest.mark.parametrize(
    "bad", ["", "-a", "a-", "A", "1a", "a_b", "a.b", "../a", "a/b", "a b", "a\n", "é", "a;rm", "a" * (names.NAME_LIMIT + 1)]
)
def test_bad_names_come_with_one_that_would_do(bad):
    with pytest.raises(ValueError, match="is no name"):
        names.check_name(bad)
    assert names.check_name(names.suggest_name(bad))


@given(st.text(max_size=200))
def test_a_suggested_name_is_always_legal(text):
    assert names.check_name(names.suggest_name(text))


def test_variables():
    assert names.check_variable("_A1") == "_A1"
    for bad in ("", "1A", "A-B", "A=B", "A\n", "É"):
        with pytest.raises(ValueError, match="no variable name"):
            names.check_variable(bad)


def test_runs():
    assert names.split_run("mnist-7") == ("mnist", 7)
    assert names.split_run("mnist") == ("mnist", None)
    assert names.split_run("a-b-10") == ("a-b", 10)
    assert names.split_run("a-07") == ("a-07", None)
