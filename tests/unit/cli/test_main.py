"""From arguments to commands, and from errors to exit codes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fairway import errors
from fairway.cli import verb as cli_verb
from fairway.cli.main import main
from fairway.testing.fake.fake_daemon import FakeDaemon
from fairway.version import VERSION

NOT_ON_THE_HOT_PATH = {
    "argparse", "asyncio", "dataclasses", "difflib", "http", "json", "msgspec", "pathlib", "pydantic", "re", "socket",
    "subprocess", "typing", "yaml",
}  # fmt: skip


def test_without_words_the_overview_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == main(["help"]) == 0
    shown = capsys.readouterr().out
    for name in cli_verb.VERBS:
        assert f"\n  {name} " in shown


@pytest.mark.parametrize("name", sorted(cli_verb.VERBS))
def test_every_verb_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    verb = cli_verb.VERBS[name]
    if not verb.parts:
        assert f"usage: fairway {name}" in shown
        assert main(["help", name]) == 0
        return
    for part in verb.parts:
        assert f"fairway {name} {part}" in shown
        assert main([name, part, "--help"]) == 0


@pytest.mark.parametrize("name", sorted(cli_verb.VERBS))
def test_the_table_and_the_modules_agree(name: str) -> None:
    verb = cli_verb.VERBS[name]
    commands = verb.load()
    assert tuple(part for part in commands if part) == verb.parts
    assert verb.parts or "" in commands
    for part, command in commands.items():
        assert command.name == f"{name} {part}".strip()
        spellings = [spelling for flag in command.all_flags for spelling in flag.names]
        assert len(spellings) == len(set(spellings)), "a spelling means one flag"


CHANGING = ("run", "submit", "apply", "stop", "resume", "delete", "prune", "exec", "cp", "init", "tensorboard")


@pytest.mark.parametrize("name", CHANGING)
def test_every_verb_that_changes_something_can_plan(name: str) -> None:
    command = cli_verb.VERBS[name].load()[""]
    assert command.find("--plan") is command.find("--dry-run")


def test_aliases_mean_their_verb() -> None:
    assert cli_verb.find_verb("ps") is cli_verb.VERBS["list"]
    assert cli_verb.find_verb("rm") is cli_verb.VERBS["delete"]
    assert cli_verb.find_verb("describe") is cli_verb.VERBS["get"]
    assert cli_verb.find_verb("cancel") is cli_verb.VERBS["stop"]
    assert not set(cli_verb.ALIASES) & set(cli_verb.VERBS)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["lsit"], "no verb is called 'lsit'; did you mean list?"),
        (["frobnicate"], "no verb is called 'frobnicate'\n  fix: `fairway --help` lists the verbs"),
        (["secret"], "fairway secret needs one of: set, list, delete"),
        (["secret", "lsit"], "fairway secret has no 'lsit'; did you mean list?"),
        (["--namespace", "x"], "no verb in: fairway --namespace x"),
        (["get", "servise/mnist"], "servise/mnist: no kind is called 'servise'"),
        (["get", "job/"], "'job/' names no job"),
        (["get", "model/"], "'model/' names no model\n  fix: `fairway list models`"),
        (
            ["why", "model/mnist"],
            "model/mnist names a model, which this verb does not accept\n  fix: write job/NAME or service/NAME",
        ),
        (["metrics", "service/mnist"], "service/mnist names a service"),
        (["top", "service", "job/mnist"], "job/mnist names a job"),
        (["model", "get", "data/mnist"], "data/mnist names a dataset"),
        (["events", "queue/research"], "queue/research names a queue"),
        (["delete", "model/mnist"], "model/mnist does not name a version\n  fix: write model/mnist@3"),
        (["delete", "data/mnist"], "data/mnist does not name a version"),
    ],
)
def test_bad_usage_is_exit_code_2(typed: list[str], said: str, home: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.err.startswith("fairway: ")
    assert shown.out == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError("x"), 2),
        (
            errors.SpecError(
                [errors.DocumentMistake("is no number", path="roles.worker.replicas", file="job.yaml", line=7, column=12)]
            ),
            2,
        ),
        (errors.NotFoundError("x"), 3),
        (errors.UnavailableError("x"), 4),
        (errors.RefusedError("x"), 5),
        (errors.NeverFitsError("x"), 5),
        (errors.BugError("x"), 1),
    ],
)
def test_errors_of_the_daemon_become_exit_codes(
    error: errors.FairwayError, code: int, daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.answers["GET /v1/jobs/mnist"] = error
    assert main(["get", "mnist"]) == code
    stderr = capsys.readouterr().err
    if isinstance(error, errors.SpecError):
        assert stderr == f"{error}\nfairway: the document was refused; nothing was changed\n"
    else:
        assert stderr == f"fairway: {error}\n"


def test_debug_shows_where_it_came_from(daemon: FakeDaemon) -> None:
    daemon.answers["GET /v1/jobs/mnist"] = errors.NotFoundError("x")
    with pytest.raises(errors.NotFoundError):
        main(["get", "mnist", "--debug"])


def test_a_flag_of_the_command_is_not_ours(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stop", "--", "--debug"]) == 2
    assert "takes nothing after `--`" in capsys.readouterr().err


def test_the_daemon_that_cannot_start_is_exit_code_4(
    home: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert main(["list"]) == 4
    assert "/no/such/python cannot be started" in capsys.readouterr().err


def test_common_flags_may_come_first(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.answers["GET /v1/jobs"] = "a table\n"
    daemon.answers["GET /v1/nodes/a"] = "a node\n"
    assert main(["-n", "team", "list"]) == 0
    assert main(["-n", "team", "top", "node/a"]) == 0
    assert [asked.query["namespace"] for asked in daemon.asked] == ["team", "team"]
    assert capsys.readouterr().out == "a table\na node\n"


def test_top_of_one_job(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.answers["GET /v1/top/jobs/mnist"] = "tasks\n"
    assert main(["top", "job", "mnist"]) == 0
    assert main(["top", "job/mnist"]) == 0
    assert capsys.readouterr().out == "tasks\ntasks\n"


def test_an_interrupt_is_exit_code_130(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_verb.VERBS["version"].load()[""], "act", interrupt)
    assert main(["version"]) == 130


def test_a_reader_that_has_seen_enough_is_no_error(daemon: FakeDaemon) -> None:
    daemon.answers["GET /v1/jobs/m/logs"] = b"line\n" * 200_000
    program = "import sys; from fairway.cli.main import main; sys.exit(main(['logs', 'm']))"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    assert (process.wait(30), process.stderr.read()) == (0, b"")
    process.stderr.close()


@pytest.mark.parametrize("typed", [["--version"], ["version"], ["-V"]])
def test_the_version(typed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed) == 0
    assert capsys.readouterr().out == f"fairway {VERSION}\n"


def loaded(typed: list[str]) -> set[str]:
    program = (
        f"import sys; before = set(sys.modules); from fairway.cli.main import main; main({typed!r}); sys.stdout.flush()\n"
        "print(*(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("typed", [["--help"], ["list", "--help"], ["run", "--help"], ["version"]])
def test_help_loads_nothing_dear(typed: list[str], home: str) -> None:
    assert loaded(typed) & NOT_ON_THE_HOT_PATH == set()


def test_list_loads_nothing_dear(daemon: FakeDaemon) -> None:
    daemon.answers["GET /v1/jobs"] = "a table\n"
    assert loaded(["list"]) & NOT_ON_THE_HOT_PATH == set()
