"""Names of jobs and runs."""

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
    with pytest.raises(ValueError, match="is not a valid name"):
        names.check_name(bad)
    assert names.check_name(names.suggest_name(bad))


@given(st.text(max_size=200))
def test_a_suggested_name_is_always_legal(text):
    assert names.check_name(names.suggest_name(text))


def test_variables():
    assert names.check_variable("_A1") == "_A1"
    for bad in ("", "1A", "A-B", "A=B", "A\n", "É"):
        with pytest.raises(ValueError, match="not a valid variable name"):
            names.check_variable(bad)


def test_runs():
    assert names.split_run("mnist-7") == ("mnist", 7)
    assert names.split_run("mnist") == ("mnist", None)
    assert names.split_run("a-b-10") == ("a-b", 10)
    assert names.split_run("a-07") == ("a-07", None)


@pytest.mark.parametrize("name", ["a", "mnist", "resnet50", "mnist-2", "net--x", "net--0123456789a", "a" * names.NAME_LIMIT])
def test_a_model_with_a_legal_name_keeps_it(name):
    assert names.model_name(name) == name


@pytest.mark.parametrize(
    ("given", "begins"),
    [
        ("ResNet50", "resnet50--"),
        ("ResNet18", "resnet18--"),
        ("My Net", "my-net--"),
        ("Größe", "grosse--"),
        ("模型", "model--"),
        ("3D U-Net", "model-3d-u-net--"),
        ("net--0123456789", "net-0123456789--"),
        ("", "model--"),
        ("X" * 256, "x" * 40 + "--"),
    ],
)
def test_another_name_becomes_a_readable_one_with_a_digest(given, begins):
    made = names.model_name(given)
    assert names.check_name(made).startswith(begins)
    assert len(made) == len(begins) + 10


def test_the_name_of_a_model_is_the_same_in_every_version():
    assert names.model_name("ResNet50") == "resnet50--17602d153a"


_ODD = st.text(st.characters(exclude_categories=()), max_size=256)
_NEAR = st.text("aAbB01- _.éÉ模", max_size=60)
_GIVEN = st.one_of(_ODD, _NEAR, _NEAR.map(names.model_name), st.from_regex(r"[a-z]{1,9}--[0-9a-f]{10}", fullmatch=True))


@given(st.lists(_GIVEN, unique=True, min_size=2, max_size=20))
def test_two_names_never_become_one(given):
    made = [names.model_name(each) for each in given]
    assert len(set(made)) == len(given)
    assert [names.check_name(each) for each in made] == made


@given(_GIVEN)
def test_only_a_legal_name_is_kept_and_it_is_kept_unless_it_looks_made(text):
    made = names.model_name(text)
    assert (made == text) == (names.is_name(text) and not names.is_made(text))
    assert names.is_made(made) == (made != text)
