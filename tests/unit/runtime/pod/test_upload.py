"""Uploading checkpoints and outputs to the operator and fetching them: over real connections, while the operator restarts."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from fairway.api.mlflow.token import token_of
from fairway.api.pods.download import make_given
from fairway.api.pods.upload import UploadRoutes
from fairway.app.port.port import Observation
from fairway.app.tracking.run import TokenCaller
from fairway.registry.upload.run_upload import RunUploads
from fairway.runtime import checkpoint, task_contract
from fairway.runtime.pod import fetch, upload
from fairway.runtime.pod.upload import CheckpointUploader, OperatorUploads, restore
from fairway.spec.job import JobSpec
from fairway.state.job import JobKey, JobState

SECRET = b"secret"
ROLE = {"command": ["python", "train.py"]}


class Server:
    """The operator's side; it can stop and return at the same address."""

    def __init__(self, folder: Path) -> None:
        self.carried = RunUploads(folder)
        self.seen: list[Observation] = []
        self.attempts: dict[str, int] = {}
        spec = JobSpec.model_validate({"roles": {"worker": ROLE}, "checkpoint": {"keep": 2}, "outputs": {"model": "m"}})
        self.jobs = {JobKey("team", "mnist-1"): JobState(JobKey("team", "mnist-1"), "mnist", 1, spec)}
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    async def take(self, observation: Observation) -> None:
        self.seen.append(observation)

    def start(self) -> None:
        routes = UploadRoutes(self.carried, self.jobs.get, lambda _, task: self.attempts.get(task, 0), self.take, SECRET).routes()
        self._server = uvicorn.Server(uvicorn.Config(make_given(routes), lifespan="off", log_config=None))
        sockets = [self._listening.dup()]
        self._serving = threading.Thread(target=lambda: asyncio.run(self._server.serve(sockets)))
        self._serving.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._serving.join()

    def close(self) -> None:
        self._listening.close()

    def operator(self, run: str = "mnist-1", namespace: str = "team") -> OperatorUploads:
        return OperatorUploads(self.endpoint, token_of(SECRET, TokenCaller(namespace, run)))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(tmp_path / "carried")
    found.start()
    yield found
    found.stop()
    found.close()


def save(root: Path, step: int, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Path:
    """Save a checkpoint as a program does."""
    monkeypatch.setenv(task_contract.CHECKPOINT_DIR, str(root))
    with checkpoint.save(step, **more) as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "model.pt").write_bytes(os.urandom(100_000))
    return root / task_contract.STEP_FOLDER.format(step=step)


def test_the_next_attempt_begins_where_the_last_one_saved(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    carrying_first = CheckpointUploader(server.operator(), str(first), {})
    assert restore(server.endpoint, server.operator().token, str(first)) == ""
    for step in (10, 20, 30):
        save(first, step, monkeypatch, epoch=step // 10)
        assert carrying_first.send_newest()
    assert carrying_first.send_newest(), "nothing is sent twice"
    assert [(one.key.name, one.checkpoint_step) for one in server.seen] == [("mnist-1", 10), ("mnist-1", 20), ("mnist-1", 30)]
    assert [one.step for one in server.carried.checkpoints("team", "mnist-1")] == [30, 20], "as many as the document keeps"
    assert restore(server.endpoint, server.operator().token, str(second)) == "step-000000000030"
    monkeypatch.setenv(task_contract.CHECKPOINT_DIR, str(second))
    latest = checkpoint.latest(deep=True)
    assert latest is not None
    assert (latest.step, latest.meta, latest.sequence) == (30, {"epoch": 3}, 3)
    assert (second / task_contract.LATEST).read_text() == "step-000000000030\n"
    save(second, 40, monkeypatch)
    started = CheckpointUploader(server.operator(), str(second), {})
    started.start()
    assert started.finish(succeeded=False) == ""
    assert server.carried.checkpoint("team", "mnist-1", "latest").step == 30, "what is there at the start was brought from here"


def test_another_run_gets_nothing_of_it(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.jobs[JobKey("other", "mnist-1")] = replace(server.jobs[JobKey("team", "mnist-1")], key=JobKey("other", "mnist-1"))
    folder = save(tmp_path / "root", 10, monkeypatch)
    server.operator().send(upload.CHECKPOINTS + folder.name, str(folder))
    others = server.operator(namespace="other").token
    assert restore(server.endpoint, others, str(tmp_path / "theirs")) == ""
    gone = token_of(SECRET, TokenCaller("team", "gone-1"))
    for token, words in (("no token", "not the token of a run"), (gone, "there is no run team/gone-1")):
        with pytest.raises(fetch.RequestRejectedError, match=words):
            OperatorUploads(server.endpoint, token).send(upload.CHECKPOINTS + folder.name, str(folder))
    with pytest.raises(fetch.RequestRejectedError, match="has no output 'rows'"):
        server.operator().send(upload.OUTPUTS + "rows", str(folder))


def test_a_pod_that_was_held_for_lost_mixes_nothing_into_the_attempt_that_replaced_it(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    token = server.operator().token
    server.attempts["worker-0"] = 1
    root = tmp_path / "root"
    save(root, 10, monkeypatch)
    assert CheckpointUploader(OperatorUploads(server.endpoint, token, "worker-0", 0), str(root), {}).send_newest()
    assert "attempt 0 of worker-0 was replaced by attempt 1" in capsys.readouterr().err
    assert server.carried.checkpoints("team", "mnist-1") == []
    late = CheckpointUploader(OperatorUploads(server.endpoint, token, "worker-0", 0), str(root), {"model": str(root)})
    late.start()
    assert "was replaced" in late.finish(succeeded=True)
    assert CheckpointUploader(OperatorUploads(server.endpoint, token, "worker-0", 1), str(root), {}).send_newest()
    assert [checkpoint.step for checkpoint in server.carried.checkpoints("team", "mnist-1")] == [10]


def test_what_is_no_checkpoint_is_refused_once_and_for_all(server: Server, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.pt").write_bytes(b"x")
    with pytest.raises(fetch.RequestRejectedError, match="it does not match its manifest"):
        server.operator().send(upload.CHECKPOINTS + "step-000000000010", str(tmp_path / "other"))


@pytest.mark.parametrize("name", ["step-" + "9" * 30, f"step-{2**63}", "step-" + "9" * 5000])
def test_a_step_that_the_record_cannot_hold_is_refused(server: Server, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "model.pt").write_bytes(b"x")
    with pytest.raises(fetch.RequestRejectedError, match="has more than 64 bits"):
        server.operator().send(upload.CHECKPOINTS + name, str(folder))
    assert server.seen == []


@pytest.mark.parametrize("step", ["boom", None, [1], {"a": 1}, 2**70, True])
def test_a_manifest_with_a_step_of_another_type_is_refused(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: object
) -> None:
    folder = save(tmp_path / "root", 10, monkeypatch)
    path = folder / task_contract.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "step": step}))
    with pytest.raises(fetch.RequestRejectedError):
        server.operator().send(upload.CHECKPOINTS + folder.name, str(folder))
    assert server.seen == []


def test_an_attempt_that_is_no_number_of_64_bits_counts_as_none(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.attempts["worker-0"] = 1
    folder = save(tmp_path / "root", 10, monkeypatch)
    odd = OperatorUploads(server.endpoint, server.operator().token, "worker-0", int("9" * 4000))
    odd.send(upload.CHECKPOINTS + folder.name, str(folder))
    assert [one.checkpoint_step for one in server.seen] == [10]


def test_while_the_operator_is_away_the_program_goes_on_and_the_newest_arrives_later(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    carries = CheckpointUploader(server.operator(), str(root), {})
    save(root, 10, monkeypatch)
    assert carries.send_newest()
    server.stop()
    server.close()
    for step in (20, 30, 40, 50):
        save(root, step, monkeypatch, keep=1)
        assert not carries.send_newest()
    assert list(root.glob(".sent-*")) == []
    again = Server(tmp_path / "carried")
    again.start()
    try:
        assert again.carried.checkpoint("team", "mnist-1", "latest").step == 10, "it is on the operator's disk"
        carries = CheckpointUploader(again.operator(), str(root), {})
        assert carries.send_newest()
        assert again.carried.checkpoint("team", "mnist-1", "latest").step == 50
    finally:
        again.stop()
        again.close()
    server.start = lambda: None  # type: ignore[method-assign]
    server.stop = server.close = lambda: None  # type: ignore[method-assign]


def test_a_connection_that_is_cut_in_the_middle_leaves_no_checkpoint(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(tmp_path / "root", 10, monkeypatch)
    data = b"".join(upload.archive.pack(str(folder)))
    head = f"PUT {upload.CHECKPOINTS}{folder.name} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.operator().token}\r\n"
    for length, cut in ((len(data), 50_000), (len(data), 0), (len(data) - 1024, len(data) - 1024)):
        with socket.create_connection(server.endpoint.removeprefix("http://").split(":")) as connection:
            connection.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode() + data[:cut])
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
    server.stop()  # after all requests are answered
    server.start()
    assert server.carried.checkpoints("team", "mnist-1") == []
    assert server.seen == []
    assert list((tmp_path / "carried" / ".arriving").iterdir()) == []


def test_a_disk_without_room_says_so_and_the_run_goes_on(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(RunUploads, "room", lambda _: 1 << 10)
    root = tmp_path / "root"
    save(root, 10, monkeypatch)
    assert not CheckpointUploader(server.operator(), str(root), {}).send_newest()
    assert "has no room for this" in capsys.readouterr().err


def test_outputs_arrive_after_a_success_and_only_then(server: Server, tmp_path: Path) -> None:
    (tmp_path / "model" / "inner").mkdir(parents=True)
    (tmp_path / "model" / "inner" / "model.onnx").write_bytes(b"model")
    outputs = {"model": str(tmp_path / "model"), "empty": str(tmp_path / "empty")}

    def carries(where: dict[str, str] = outputs) -> CheckpointUploader:
        found = CheckpointUploader(server.operator(), str(tmp_path / "checkpoints"), where)
        found.start()
        return found

    assert carries().finish(succeeded=False) == ""
    assert not server.carried.output("team", "mnist-1", "model").exists()
    assert carries().finish(succeeded=True) == ""
    assert (server.carried.output("team", "mnist-1", "model") / "inner" / "model.onnx").read_bytes() == b"model"
    said = carries({"rows": str(tmp_path / "model")}).finish(succeeded=True)
    assert "the output rows could not be sent to the operator" in said
    assert "it has model" in said
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = OperatorUploads(f"http://127.0.0.1:{taken.getsockname()[1]}", "token")
    away = CheckpointUploader(nobody, str(tmp_path / "checkpoints"), outputs)
    away.start()
    said = away.finish(succeeded=True, patience=0.0)
    assert said.startswith("the output model could not be sent to the operator")


def test_a_checkpoint_that_comes_back_damaged_is_not_begun_from(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(tmp_path / "root", 10, monkeypatch)
    server.operator().send(upload.CHECKPOINTS + folder.name, str(folder))
    kept = server.carried.checkpoint("team", "mnist-1", "latest").path
    data = bytearray(kept.read_bytes())
    data[700] ^= 1
    kept.write_bytes(data)
    target = tmp_path / "target"
    with pytest.raises(OSError, match="could not be fetched within"):
        restore(server.endpoint, server.operator().token, str(target), patience=0.0)
    assert [path for path in target.iterdir() if not path.name.startswith(".trash")] == []
    shutil.rmtree(target)
