"""Documents are data: nothing in them reaches a shell, another user's file, or a path outside of the run's folders."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from daemon_home import DaemonHome

NASTY = [
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned",
    "&& touch pwned",
    "| touch pwned",
    "> pwned",
    "'\"$(touch pwned)\"'",
    "{{ touch }}",
    "%(pwned)s {pwned} ${pwned}",
    "a\nb\ttab",
    "*",
    "~root",
    "-rf",
    "naïve ☃",
]
ECHO = "import json, os, sys; print(json.dumps([sys.argv[1:], {k: v for k, v in os.environ.items() if k.startswith('NASTY')}]))"


@pytest.fixture
def home(shared_home: DaemonHome) -> DaemonHome:
    """One home for all tests: nothing here may leave a trace in it."""
    return shared_home


def run_to_the_end(home: DaemonHome, document: dict[str, object]) -> str:
    name = home.submit(document)
    home.until_phase(name, "Succeeded")
    return home.ask("logs", name)


def test_arguments_and_variables_arrive_as_they_were_written(home: DaemonHome) -> None:
    harmless = [word for word in NASTY if "{{" not in word]
    document = home.document("nasty", 1, sys.executable, "-I", "-c", ECHO, *harmless, code=".")
    document["env"] |= {f"NASTY{number}": word for number, word in enumerate(harmless)}
    seen, variables = json.loads(run_to_the_end(home, document))
    assert seen == harmless
    assert variables == {f"NASTY{number}": word for number, word in enumerate(harmless)}
    assert not list(home.path.rglob("pwned")) + list(home.work.rglob("pwned"))


def test_a_command_in_one_line_is_split_and_never_interpreted(home: DaemonHome) -> None:
    document = home.document("line", 1, code=".")
    document["roles"]["worker"]["command"] = "echo '$(touch' pwned) '`touch' 'pwned`' ~root $HOME"
    assert "$(touch pwned) `touch pwned` ~root $HOME" in run_to_the_end(home, document)
    assert not list(home.path.rglob("pwned")) + list(home.work.rglob("pwned"))


def test_the_command_line_passes_words_on_as_they_are(home: DaemonHome) -> None:
    told = home.ask(
        "run",
        "--gpus",
        "0",
        "-e",
        "NASTY=$(touch pwned)",
        "--",
        sys.executable,
        "-I",
        "-c",
        ECHO,
        "$(touch pwned)",
        "; touch pwned",
    )
    assert '[["$(touch pwned)", "; touch pwned"], {"NASTY": "$(touch pwned)"}]' in told
    assert not list(home.work.rglob("pwned"))


@pytest.mark.parametrize(
    "name", ["../evil", "..", "a/b", "a\x00b", "/etc", "a b", "$(touch pwned)", "-rf", "", "x" * 64, "Ünïcode"]
)
def test_a_name_that_is_none_is_refused(home: DaemonHome, name: str) -> None:
    home.work.joinpath("bad.yaml").write_text(f"kind: TrainingJob\nname: {json.dumps(name)}\ncommand: 'true'\n")
    home.ask("list")
    before = traces(home)
    refused = home.call("submit", "bad.yaml")
    assert refused.returncode == 2, refused.stderr
    assert "name" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert traces(home) == before


@pytest.mark.parametrize(
    "part",
    [
        "roles: {'../evil': {command: 'true'}}",
        "roles: {worker: {command: 'true'}}\noutputs: {'../../evil': x}",
        "roles: {worker: {command: 'true'}}\nnamespace: ../evil",
        "roles: {worker: {command: 'true'}}\nsecrets: ['../../etc/passwd']",
        "roles: {worker: {command: 'true', env: {'A=B; touch pwned': x}}}",
        "roles: {worker: {command: 'true'}}\ndata: {'../evil': /etc}",
    ],
)
def test_a_field_that_would_leave_its_folder_is_refused(home: DaemonHome, part: str) -> None:
    home.work.joinpath("bad.yaml").write_text(f"kind: TrainingJob\nname: bad\n{part}\n")
    home.ask("list")
    before = traces(home)
    refused = home.call("submit", "bad.yaml")
    assert refused.returncode == 2, f"{refused.returncode} {refused.stderr}"
    assert "bad.yaml:" in refused.stderr
    assert traces(home) == before


@pytest.mark.parametrize("name", ["../token", "a/b", "..", "A=B", "-x", "a b"])
def test_a_secret_with_such_a_name_is_refused(home: DaemonHome, name: str) -> None:
    home.ask("list")
    before = traces(home)
    refused = home.call("secret", "set", "--", name, say="value")
    assert refused.returncode == 2, f"{refused.returncode} {refused.stderr}"
    assert traces(home) == before


@pytest.mark.parametrize("target", ["/etc", "/etc/passwd", "../outside", "inner/../../outside"])
def test_a_snapshot_with_a_link_that_leads_out_is_refused(home: DaemonHome, tmp_path: Path, target: str) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/private").write_text("private")
    (code / "train.py").write_text("print('trained')\n")
    (code / "link").symlink_to(target)
    document = home.document("refused", 1, sys.executable, "train.py", code=str(code))
    refused = home.call("submit", home.write(document))
    assert refused.returncode == 5, f"{refused.returncode} {refused.stderr}"
    assert f"link is a link to {target}" in refused.stderr
    assert not [name for name in home.names() if name.startswith("refused")]


def test_a_link_inside_of_the_code_is_kept(home: DaemonHome, tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "package").mkdir(parents=True)
    (code / "package/train.py").write_text("print('trained')\n")
    (code / "train.py").symlink_to("package/train.py")
    assert "trained" in run_to_the_end(home, home.document("linked", 1, sys.executable, "train.py", code=str(code)))


def test_what_a_task_does_to_its_code_stays_with_it(home: DaemonHome, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(
        "import os; open('train.py', 'a').write('# mi' + 'ne'); os.symlink('/etc', 'etc'); print(os.getcwd())\n"
    )
    first = run_to_the_end(home, home.document("writes", 1, sys.executable, "train.py", code=str(code)))
    second = run_to_the_end(home, home.document("writes", 1, sys.executable, "train.py", code=str(code)))
    assert first != second
    assert Path(first).is_relative_to(home.path)
    assert "# mine" not in (code / "train.py").read_text()
    for run in ("writes-1", "writes-2"):
        home.ask("delete", run)
    assert os.path.exists("/etc/passwd")


def test_a_run_that_linked_its_folders_elsewhere_is_deleted_without_following(home: DaemonHome, tmp_path: Path) -> None:
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "gold").write_text("gold")
    code = f"import os, shutil; d = os.environ['FAIRWAY_CHECKPOINT_DIR']; os.rmdir(d); os.symlink({str(treasure)!r}, d)"
    name = home.submit(home.document("linker", 1, sys.executable, "-I", "-c", code))
    home.until_phase(name, "Succeeded")
    home.ask("delete", name)
    assert (treasure / "gold").read_text() == "gold"
    assert not (home.path / "jobs/default" / name).exists()


def test_a_secret_is_seen_by_its_task_alone(home: DaemonHome) -> None:
    value = "open sesame $(touch pwned)"
    home.ask("secret", "set", "TOKEN", say=value)
    code = "import os; t = os.environ['TOKEN']; print('length', len(t)); print('it is ' + t)"
    log = run_to_the_end(home, home.document("secretive", 1, sys.executable, "-I", "-c", code, secrets=["TOKEN"]))
    assert f"length {len(value)}" in log
    assert value not in log
    told = [home.ask(*words) for words in (("get", "secretive", "-o", "json"), ("events", "secretive"), ("why", "secretive"))]
    assert all(value not in text for text in told)
    written = [path for path in home.path.rglob("*") if path.is_file() and value.encode() in path.read_bytes()]
    allowed = {home.path / "secrets/TOKEN", home.attempt("secretive-1/worker-0#0") / "out-0.log"}
    assert set(written) <= allowed


def traces(home: DaemonHome) -> list[str]:
    """Return everything that a careless refusal could leave: in the home, except what the daemon always writes, and around it."""
    own = ("fairway.db", "daemon.log")
    backups = home.path / "backups"  # the daemon creates one soon after its start
    paths = [path for path in home.path.parent.rglob("*") if not path.name.startswith(own)]
    return sorted(str(path) for path in paths if not path.is_relative_to(backups))
