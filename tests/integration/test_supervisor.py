"""A supervisor starts processes, waits for them and records how they ended."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairway.testing.local_engine_fixture import SupervisorFixture, until


@pytest.fixture
def playground(tmp_path: Path) -> Iterator[SupervisorFixture]:
    made = SupervisorFixture(tmp_path)
    yield made
    made.close()


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-c", code]


async def test_output_and_errors_go_to_one_file_in_order(playground: SupervisorFixture) -> None:
    attempt = await playground.start(["sh", "-c", "echo one; echo two >&2; echo three"])
    end = await attempt.over()
    assert attempt.log == "one\ntwo\nthree\n"
    assert end["tail"] == "one\ntwo\nthree\n"
    assert (end["code"], end["signal"], end["by_us"], end["out_of_memory"]) == (0, None, False, False)
    assert end["started"] <= end["finished"]


async def test_a_process_begins_clean(playground: SupervisorFixture) -> None:
    code = """
import json, os, signal, sys
held = sorted(int(name) for name in os.listdir("/proc/self/fd"))
print(json.dumps({
    "cwd": os.getcwd(), "env": dict(os.environ), "input": os.readlink("/proc/self/fd/0"),
    "leader": os.getsid(0) == os.getpid() == os.getpgid(0),
    "files": [number for number in held if number > 2 and os.path.exists(f"/proc/self/fd/{number}")],
    "ignored": [line.split()[1] for line in open("/proc/self/status") if line.startswith("SigIgn")][0],
    "blocked": [line.split()[1] for line in open("/proc/self/status") if line.startswith("SigBlk")][0],
    "umask": os.umask(0), "oom": int(open("/proc/self/oom_score_adj").read()),
}))
"""
    # Python itself ignores two signals, so a shell checks first; by a builtin, because it blocks all signals to start a program.
    look = 'while read -r name value; do case $name in SigIgn:|SigBlk:) echo "$name $value";; esac; done < /proc/$$/status'
    shell = f'{look}; exec "$0" -I -c "$1"'
    attempt = await playground.start(["sh", "-c", shell, sys.executable, code], env={"GREETING": "hi \udcff"}, umask=0o027)
    await attempt.over()
    *first, last = attempt.log.splitlines()
    seen = json.loads(last)
    # Signals 32 and 33 belong to the C library: other programs cannot set them, and what `make` starts has them ignored.
    assert {int(line.split()[1], 16) & ~0x180000000 for line in first} == {0}
    assert seen["cwd"] == str(playground.folder)
    assert seen["env"].pop("PATH")
    assert seen["env"].pop("FAIRWAY_ATTEMPT_DIR") == str(attempt.folder)
    assert seen["env"].pop("GREETING") == "hi \udcff"
    assert set(seen["env"]) <= {"PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"}
    assert seen["input"] == "/dev/null"
    assert seen["leader"]
    assert seen["files"] == []
    assert seen["umask"] == 0o027
    assert seen["oom"] == 300


async def test_files_are_for_their_owner_alone(playground: SupervisorFixture) -> None:
    before = os.umask(0)
    try:
        attempt = await playground.start(["sh", "-c", "echo hello"])
    finally:
        os.umask(before)
    await attempt.over()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in attempt.folder.iterdir()}
    assert set(modes) == {"lock", "started.json", "exit.json", "out-0.log", "out-0.index"}
    assert set(modes.values()) == {0o600}


async def test_values_of_variables_are_written_nowhere(playground: SupervisorFixture) -> None:
    command = ["sh", "-c", 'echo "token is $TOKEN"; exit 1']
    attempt = await playground.start(command, env={"TOKEN": "s3cr3t-value"}, secrets=["TOKEN"])
    end = await attempt.over()
    assert end["tail"] == "token is ***\n"
    for path in attempt.folder.iterdir():
        if path.name != "out-0.log":
            assert b"s3cr3t-value" not in path.read_bytes(), path


async def test_several_processes_have_logs_of_their_own(playground: SupervisorFixture) -> None:
    attempt = await playground.start(*(["sh", "-c", f"echo rank {rank}"] for rank in range(3)))
    end = await attempt.over()
    assert [attempt.output(rank) for rank in range(3)] == ["rank 0\n", "rank 1\n", "rank 2\n"]
    assert [(entry["rank"], entry["code"]) for entry in end["processes"]] == [(0, 0), (1, 0), (2, 0)]


async def test_the_first_that_fails_decides_and_ends_the_others(playground: SupervisorFixture) -> None:
    # A waiting shell may miss a signal that arrives just before the wait: this program cannot.
    code = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
open("ready", "w").close()
while True:
    time.sleep(0.01)
"""
    failing = ["sh", "-c", "until [ -e ready ]; do sleep 0.01; done; exit 7"]
    attempt = await playground.start(["sleep", "600"], failing, [sys.executable, "-c", code])
    end = await attempt.over()
    assert (end["rank"], end["code"], end["signal"], end["by_us"]) == (1, 7, None, False)
    assert end["processes"][0]["signal"] == signal.SIGTERM
    assert end["processes"][2]["code"] == 9
    assert attempt.left() == []


async def test_a_process_that_ends_well_does_not_end_the_others(playground: SupervisorFixture) -> None:
    attempt = await playground.start(["true"], ["sh", "-c", "sleep 0.2; echo done"])
    end = await attempt.over()
    assert attempt.output(1) == "done\n"
    assert end["code"] == 0


async def test_a_killed_process_is_told_by_its_signal(playground: SupervisorFixture) -> None:
    attempt = await playground.start(["sleep", "600"])
    os.kill(attempt.begun["processes"][0]["pid"], signal.SIGKILL)
    end = await attempt.over()
    assert (end["code"], end["signal"], end["by_us"], end["out_of_memory"]) == (None, signal.SIGKILL, False, False)


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["pythn3"], 127, "there is no program 'pythn3' on PATH; did you mean 'python3'?"),
        (["qqqqzzzzxxxx"], 127, "there is no program 'qqqqzzzzxxxx' on PATH"),
        (["train.sh"], 127, "there is no program 'train.sh' on PATH; the file lies in the working folder: write ./train.sh"),
        (["./trian.sh"], 127, "did you mean './train.sh'?"),
        (["./train.sh"], 126, "'./train.sh' is not executable; make it so with chmod +x"),
        (["./plain.sh"], 126, "'./plain.sh' is no program and has no #! line"),
        (["./ok", "zero\0byte"], 126, "contain a zero byte"),
        (["./ok", "x" * 4_000_000], 126, "longer than the system allows"),
        (["./broken.sh"], 127, "'./broken.sh' exists but its interpreter (the #! line) does not"),
    ],
)
async def test_a_program_that_cannot_be_started_is_explained(
    playground: SupervisorFixture, argv: list[str], code: int, words: str
) -> None:
    (playground.folder / "train.sh").write_text("#!/bin/sh\n")
    for name, text in (("ok", "#!/bin/sh\n"), ("plain.sh", "echo hi\n"), ("broken.sh", "#!/no/such/interpreter\n")):
        (playground.folder / name).write_text(text)
        (playground.folder / name).chmod(0o755)
    attempt = await playground.start(argv)
    end = await attempt.over()
    assert end["code"] == code
    assert words in end["words"]
    assert words in attempt.log


async def test_a_folder_that_does_not_exist_is_explained(playground: SupervisorFixture) -> None:
    attempt = await playground.start(["true"], cwd="/no/such/folder")
    end = await attempt.over()
    assert end["code"] == 127
    assert end["words"] == "cannot enter the working folder '/no/such/folder': no such file or directory"


async def test_the_same_traceback_has_the_same_name_and_another_has_another(playground: SupervisorFixture) -> None:
    code = "import sys\ndef f(x):\n    raise {kind}(f'at {{id(x):x}} {{sys.argv[1]}}')\nf(object())"
    digests = []
    for kind, argument in (("ValueError", "1"), ("ValueError", "2"), ("KeyError", "1")):
        attempt = await playground.start([*python(code.format(kind=kind)), argument])
        digests.append((await attempt.over())["traceback_digest"])
    assert digests[0]
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]


async def test_the_last_step_reported_is_recorded(playground: SupervisorFixture) -> None:
    lines = ['{"time": 1, "step": 41, "metrics": {}}', '{"time": 2, "step": 42, "metrics": {}}', '{"time": 3, "st']
    script = 'printf \'%s\\n\' "$@" >> "$FAIRWAY_ATTEMPT_DIR/metrics-0.jsonl"; exit 1'
    attempt = await playground.start(["sh", "-c", script, "sh", *lines])
    assert (await attempt.over())["reached_step"] == 42


async def test_a_long_output_leaves_its_last_part_in_the_record(playground: SupervisorFixture) -> None:
    attempt = await playground.start(python("print('x' * 100_000); print('the end')"))
    end = await attempt.over()
    assert len(end["tail"]) == 4096
    assert end["tail"].endswith("x\nthe end\n")


async def test_orphans_are_adopted_and_none_survives(playground: SupervisorFixture) -> None:
    mark = f"{os.getpid()}600"
    code = """
import os, signal, sys, time
for times in (1, 2, 3):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for _ in range(times):
            if os.fork(): os._exit(0)
            os.setsid()
        os.execve("/bin/sleep", ["sleep", sys.argv[1]], {})
while sum([b"sleep", sys.argv[1].encode(), b""] == command().split(bytes(1)) for command in commands()) < 3: time.sleep(0.01)
"""
    look = """
import os
def commands():
    for name in os.listdir("/proc"):
        if name.isdigit():
            def read(name=name):
                try: return open(f"/proc/{name}/cmdline", "rb").read()
                except OSError: return b""
            yield read
"""
    attempt = await playground.start([*python(look + code), mark])
    end = await attempt.over()
    assert end["code"] == 0, attempt.log
    hidden = [path for path in Path("/proc").glob("[0-9]*") if _command_line(path) == f"sleep\0{mark}\0".encode()]
    assert hidden == []


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


async def test_a_process_that_forks_faster_than_it_dies_is_ended(playground: SupervisorFixture) -> None:
    code = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("go", flush=True)
end = time.monotonic() + 20
while time.monotonic() < end:
    if os.fork() == 0:
        os.setsid()
    else:
        time.sleep(0.01)
        os._exit(0)
"""
    attempt = await playground.start(python(code))
    await until(lambda: "go" in attempt.log)
    attempt.ask(op="kill")
    await attempt.over()
    assert attempt.left() == []


async def test_nothing_starts_when_the_permission_does_not_come(playground: SupervisorFixture) -> None:
    good, bad = playground.prepare(["sh", "-c", "echo started"]), playground.prepare(["true"])
    bad.folder.rmdir()
    answers = await playground.spawner.spawn([(good.order, []), (bad.order, [])])
    assert "No such file" in answers[1].problem
    await until(lambda: list(good.folder.iterdir()) == [])


async def test_clean_up_commands_run_when_everything_has_ended(playground: SupervisorFixture) -> None:
    attempt = await playground.start(["sleep", "600"], cleanup=[["no-such-program"], ["sh", "-c", "echo $PPID > cleaned"]])
    attempt.ask(op="kill")
    end = await attempt.over()
    assert end["by_us"]
    assert int((attempt.folder / "cleaned").read_text()) == attempt.supervisor.pid
