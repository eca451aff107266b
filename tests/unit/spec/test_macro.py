"""Finding and replacing macros, as data."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import UsageError
from fairway.spec import macro

VALUES = {"index": "1", "ps_hosts": "a:1,b:2", "data.train-set": "/d", "evil": "{{index}} $(rm) `x`"}


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("--task_index={{index}}", "--task_index=1"),
        ("{{ ps_hosts }}/{{index}}", "a:1,b:2/1"),
        ("{{data.train-set}}", "/d"),
        ("{{evil}}", "{{index}} $(rm) `x`"),
        ("{{{{index}}}}", "{{index}}"),
        ("{{{{anything at all}}}} {{index}}", "{{anything at all}} 1"),
        ('{"a": {"b": 1}}', '{"a": {"b": 1}}'),
        ("{{a b}} {{}} {{ $x }}", "{{a b}} {{}} {{ $x }}"),
        ("", ""),
    ],
)
def test_expand(text, becomes):
    assert macro.expand(text, VALUES) == becomes


def test_a_macro_without_a_value_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match=r"\{\{ps_host\}\} has no value") as caught:
        macro.expand("x {{ps_host}}", VALUES)
    assert caught.value.fix == "did you mean `ps_hosts`?"


def test_find_passes_over_literals():
    assert macro.find("{{a}} {{{{b}}}} {{ c.d }}") == ["a", "c.d"]


def test_known_names_come_from_the_job():
    found = macro.known(["my-role"], ["train"], ["model"])
    assert {"my-role_hosts", "data.train", "output.model", "ps_hosts", "index"} <= found
    assert "data.other" not in found


@given(st.text("{} ab.", max_size=30), st.text(max_size=10))
def test_a_value_is_never_looked_at_again(text, value):
    values = dict.fromkeys([*macro.find(text), "index"], value)
    macro.expand(text, values)
    assert macro.expand("<{{index}}>", {"index": value}) == f"<{value}>"
