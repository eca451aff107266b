"""Positions in YAML text, and text that is refused."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.spec.text import syntax_tree
from fairway.spec.text.syntax_tree import TextPosition, YamlMapping, YamlScalar, YamlSequence


def whole(text):
    """Return the only document of a text without mistakes."""
    nodes, mistakes = syntax_tree.compose(text)
    assert not mistakes
    (node,) = nodes
    return node


def first_mistake(text):
    _, mistakes = syntax_tree.compose(text)
    return mistakes[0]


def test_places_of_keys_and_values():
    node = whole("a: 1\nbé:\n  - x\n  - {c: 'y'}\n")
    assert node.place == TextPosition(1, 1)
    entry = node.get("bé")
    assert (entry.place, entry.value.place) == (TextPosition(2, 1), TextPosition(3, 3))
    inner = entry.value.items[1].get("c")
    assert (inner.place, inner.value) == (TextPosition(4, 6), YamlScalar("y", TextPosition(4, 9), plain=False))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-3", -3),
        ("0123", "0123"),
        ("1e3", 1000.0),
        ("1.50", 1.5),
        ("1e999", "1e999"),
        ("9" * 30, "9" * 30),
        ("yes", "yes"),
        ("on", "on"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("0x1F", "0x1F"),
        ("2020-01-01", "2020-01-01"),
        (".nan", ".nan"),
    ],
)
def test_plain_values_without_a_field(text, value):
    assert syntax_tree.resolve(YamlScalar(text)) == value
    assert syntax_tree.resolve(YamlScalar(text, plain=False)) == text


def test_aliases_and_merges():
    node = whole("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\nboth:\n  <<: [*b, {z: 4}]\n")
    assert [(entry.name, entry.value.text) for entry in node.get("use").value.entries] == [("y", "3"), ("x", "1")]
    assert node.get("both").value.names == {"x", "y", "z"}
    assert whole("'<<': 1").names == {"<<"}


def test_tags():
    assert syntax_tree.resolve(whole("!!str 1")) == "1"
    assert syntax_tree.resolve(whole("! 1")) == "1"
    assert syntax_tree.resolve(whole("!!int 1")) == 1
    for text in ("!!python/object/apply:os.system ['x']", "!x 1", "!!binary aGk=", "!!set {a}"):
        assert "is a tag that is not supported here" in str(first_mistake(text))


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a: b: c", 1, 5, "has a colon"),
        ("a: 1\n\tb: 2", 2, 1, "has a tab"),
        ("a: 'x", 1, 6, "ends inside quotes"),
        ("a: [1\nb: 2", 2, 2, "is not valid YAML"),
        ("a: 1\na: 2", 2, 1, "is defined twice; the first is on line 1"),
        ("b: {a: 1, 'a': 2}", 1, 11, "is defined twice"),
        ("? [1]\n: 2", 1, 3, "has a list where a key should be"),
        ("? {a: 1}\n: 2", 1, 3, "has a mapping where a key should be"),
        ("a:\n  ? \n  : 2", 2, 4, "has nothing where a key should be"),
        ("a: *b", 1, 4, "refers to an undefined anchor"),
        ("a: &a [*a]", 1, 8, "or to itself"),
        ("a: {<<: 3}", 1, 9, "merges a value that is not a mapping"),
        ("a: x\x00", 1, 5, r"U\+0000"),
        ("a: 1\nb: \x1b[31m", 2, 4, r"U\+001B"),
        ("a: \ud800", 1, 4, r"U\+D800"),
        ("a: x\ufeff", 1, 5, r"U\+FEFF"),
        ("\ud800" * 10, 1, 1, r"U\+D800"),
    ],
)
def test_mistakes_with_their_place(text, line, column, words):
    mistake = first_mistake(text)
    assert (mistake.line, mistake.column) == (line, column)
    assert re.search(words, str(mistake))


def test_paths_of_mistakes():
    assert first_mistake("a:\n  b:\n  - 1\n  - {c: 1, c: 2}").path == "a.b[1].c"
    assert syntax_tree.step_into("a", "b c") == "a.'b c'"
    assert syntax_tree.step_into("", "x\n") == r"'x\n'"


def test_documents_before_a_syntax_error_are_given():
    nodes, mistakes = syntax_tree.compose("a: 1\n---\nb: ]\n")
    assert [node.names for node in nodes] == [{"a"}]
    assert len(mistakes) == 1


def bomb(width, levels):
    rows = ["a0: &a0 [" + ", ".join(["x"] * width) + "]"]
    rows += [f"a{level}: &a{level} [" + ", ".join([f"*a{level - 1}"] * width) + "]" for level in range(1, levels)]
    return "\n".join(rows)


def merge_bomb():
    rows = ["a0: &a0 {" + ", ".join(f"k{n}: 1" for n in range(100)) + "}"]
    rows += [f"a{n}: &a{n}\n  <<: [" + ", ".join([f"*a{n - 1}"] * 50) + "]" for n in range(1, 9)]
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (bomb(9, 12), "100,000 values"),
        (merge_bomb(), "100,000 values"),
        ("a: [" + "1," * 300_000 + "]", "100,000 values"),
        ("[" * 500_000, "64 deep"),
        ("{a: " * 5_000, "64 deep"),
        ("\n".join(" " * n + "a:" for n in range(700)), "64 deep"),
        ("- " * 10_000, "64 deep"),
        ("a0: &a0 [" * 1 + "[" * 40 + "]" * 40 + "]\nb: " + "[" * 30 + "*a0" + "]" * 30, "64 deep"),
        ("x" * 10_000_000, "is too long"),
        ("kind: TrainingJob\n" * 600_000, "is too long"),
        ("é" * 600_000, "is too long"),
    ],
    ids=[
        "aliases",
        "merges",
        "wide",
        "deep list",
        "deep map",
        "deep block",
        "deep dashes",
        "deep alias",
        "10 MB",
        "10 MB lines",
        "bytes",
    ],
)
def test_hostile_text_is_refused_fast(text, words):
    started = time.process_time()
    _, mistakes = syntax_tree.compose(text)
    assert words in str(mistakes[-1])
    assert time.process_time() - started < 2


def test_json_may_write_one_character_as_two_escapes():
    assert whole(r'{"a": "\ud83c\udf89\u00e9\\ud83c"}').get("a").value.text == "\U0001f389é\\ud83c"


def test_plain_data_has_no_places():
    node = syntax_tree.from_data({"a": [1, True, None, "1", 1.5], "b": {}})
    assert node == YamlMapping(
        (
            syntax_tree.YamlEntry(
                "a",
                YamlSequence(
                    (YamlScalar("1"), YamlScalar("true"), YamlScalar("null"), YamlScalar("1", plain=False), YamlScalar("1.5"))
                ),
                written="a",
            ),
            syntax_tree.YamlEntry("b", YamlMapping(()), written="b"),
        )
    )


def test_plain_data_that_no_document_can_hold():
    loop: list = []
    loop.append(loop)
    for bad in (loop, {"a": object()}, {"a": {1, 2}}, "\ud800", {"\ud800": 1}, b"x"):
        with pytest.raises(ValueError, match=r"contain|nested"):
            syntax_tree.from_data(bad)


@given(st.text(max_size=80) | st.text(":-[]{}&*!|>'\"#%@`,? \n\tab1", max_size=80))
def test_any_text_composes_or_has_mistakes(text):
    nodes, mistakes = syntax_tree.compose(text)
    assert nodes or mistakes or not text.strip() or text.lstrip()[0] in "#%\ufeff" or not text.isprintable()
    for mistake in mistakes:
        assert mistake.message
        assert mistake.line >= 0
