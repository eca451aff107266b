"""Command lines as users type them, and the errors for invalid ones."""

from __future__ import annotations

import pytest

from fairway.cli import argument_parser
from fairway.cli.argument_parser import CliCommand, CommandFlag, CommandOptions, PositionalArgument, help_text, parse
from fairway.errors import UsageError


def command(**rest: object) -> CliCommand:
    flags = (
        CommandFlag("--workers -w", "how many", "N", number=True),
        CommandFlag("--env -e", "a variable", "K=V", many=True),
        CommandFlag("--framework", "which", "NAME", choices=("pytorch", "jax")),
        CommandFlag("--interactive -i", "yes"),
        CommandFlag("--tty -t", "yes"),
        argument_parser.PLAN,
        argument_parser.FORMAT,
    )
    words = (PositionalArgument("FILE", "a document", optional=True),)
    return CliCommand("run", "Run it.", lambda options: 0, **{"flags": flags, "words": words, "rest": "COMMAND...", **rest})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "typed",
    [["--workers", "2"], ["--workers=2"], ["-w", "2"], ["-w2"], ["-w=2"], ["--workers", "1", "-w", "2"]],
)
def test_a_value_in_every_spelling(typed: list[str]) -> None:
    assert parse(command(), typed).number("workers") == 2


def test_what_was_not_given() -> None:
    options = parse(command(), [])
    assert (options.number("workers"), options.text("framework", "auto")) == (None, "auto")
    assert (options.many("env"), options.on("plan"), options.word()) == ([], False, "")


def test_switches_may_stand_together() -> None:
    options = parse(command(), ["-it", "--dry-run"])
    assert options.on("interactive")
    assert options.on("tty")
    assert options.on("plan")


def test_switches_and_a_value_may_stand_together() -> None:
    assert parse(command(), ["-itw3"]).number("workers") == 3


def test_a_flag_that_may_be_given_again_collects() -> None:
    options = parse(command(), ["-e", "A=1", "job.yaml", "--env=B=x=y"])
    assert options.pairs("env") == {"A": "1", "B": "x=y"}
    assert options.words == ["job.yaml"]


def test_what_follows_the_dashes_is_left_alone() -> None:
    options = parse(command(), ["-w", "2", "--", "python", "-w", "--help", "--", "x"])
    assert options.rest == ["python", "-w", "--help", "--", "x"]
    assert not options.on("help")


def test_a_lone_dash_is_a_word() -> None:
    assert parse(command(), ["-"]).words == ["-"]


@pytest.mark.parametrize(
    ("typed", "said", "fix"),
    [
        (["--wokers", "2"], "fairway run has no flag --wokers; did you mean --workers?", "fairway run --help"),
        (["-z"], "fairway run has no flag -z", "fairway run --help"),
        (["--workers"], "--workers needs a value", "write --workers N"),
        (["--workers", "--", "python"], "--workers needs a value", "write --workers N"),
        (["--workers", "two"], "--workers two: a whole number is needed", "write for example --workers 2"),
        (["--workers", "-1"], "--workers -1: a whole number is needed", "write for example --workers 2"),
        (["--framework", "pytroch"], "--framework pytroch: not one of pytorch, jax; did you mean pytorch?", ""),
        (["--plan=yes"], "--plan=yes: --plan takes no value", "write --plan"),
        (["python", "train.py"], "unexpected argument 'train.py'", "fairway run -- python train.py"),
    ],
)
def test_what_cannot_be_meant_is_told_with_its_fix(typed: list[str], said: str, fix: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(command(), typed)
    assert said in caught.value.message
    assert fix in caught.value.fix


def test_a_pair_needs_both_halves() -> None:
    with pytest.raises(UsageError, match="--env BATCH: a name and a value are needed"):
        parse(command(), ["--env", "BATCH"]).pairs("env")


def test_a_word_that_is_missing_is_named() -> None:
    needing = command(words=(PositionalArgument("NAME", "a run"),), rest="")
    with pytest.raises(UsageError, match="fairway run: NAME is missing: a run"):
        parse(needing, [])
    assert parse(needing, ["--help"]).on("help")


def test_nothing_may_follow_the_dashes_where_nothing_is_expected() -> None:
    with pytest.raises(UsageError, match="takes nothing after `--`"):
        parse(command(rest=""), ["--", "x"])


def test_many_words() -> None:
    assert parse(command(words=(PositionalArgument("NAME", "runs", many=True),)), ["a", "b", "c"]).words == ["a", "b", "c"]


def test_a_weaker_source_only_fills_what_is_open() -> None:
    options: CommandOptions = parse(command(), ["-w", "2"])
    options.default("workers", ["7"])
    options.default("env", ["A=1", "B=2"])
    assert options.number("workers") == 2
    assert options.pairs("env") == {"A": "1", "B": "2"}
    with pytest.raises(UsageError, match="has no flag --wrokers"):
        options.default("wrokers", ["1"])


def test_help_shows_everything() -> None:
    text = help_text(command(examples=("fairway run -- a",)))
    assert text.startswith("Run it.\n\nusage: fairway run [FILE] [flags] [-- COMMAND...]\n")
    for part in ("[FILE]", "-w, --workers N", "-e, --env K=V", "--plan, --dry-run", "--namespace NAME", "fairway run -- a"):
        assert part in text
