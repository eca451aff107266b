"""Local files become versions on a cluster: the client's verbs, through the API behind the API server."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from fairway.api.aggregated_api import make_aggregated
from fairway.api.asgi import DaemonInfo, make_api
from fairway.app.upload import Held
from fairway.engines.kubernetes.identity.caller import ClusterCaller
from fairway.engines.kubernetes.record import resource
from fairway.engines.kubernetes.record.code_upload import CodeUploads
from fairway.engines.kubernetes.record.front_proxy import FrontProxy
from fairway.engines.kubernetes.record.model import CallerDatasets, CallerModels
from fairway.engines.kubernetes.record.upload import UploadReceiver
from fairway.errors import NotFoundError, RefusedError, UnavailableError, UsageError
from fairway.registry.blob import BlobStore
from fairway.registry.registry_namespace import RegistryNamespaces
from fairway.registry.upload.content_ownership import ContentOwnership
from fairway.sdk.client import AsyncClient
from fairway.sdk.method.call import ApiCall
from fairway.sdk.submission import file_upload
from fairway.sdk.transport import http
from fairway.sdk.transport.cluster import translate
from fairway.state.model import ModelFacts
from fairway.testing.builder.model_file import onnx_file, pickled_file

PIECE = 1000


class Ann(AsyncClient):
    """A user with a laptop, whose requests the API server proxies."""

    def __init__(self, client: Any, folder: Path) -> None:
        self.on_cluster, self.namespace = True, "team"
        self.blobs = BlobStore(folder / "blobs")
        namespaces = RegistryNamespaces(client.app.models._store._namespaces._root)
        self.possession = ContentOwnership(folder, self.blobs, namespaces)
        client.app.models = CallerModels(client.app.models, self.held)
        client.app.dataset_commands = CallerDatasets(client.app.dataset_commands, self.held)
        api = make_api(client.app, DaemonInfo("1.2.3", 42, ""))
        uploads = UploadReceiver(self.blobs, client.clock)
        self.app = make_aggregated(
            api, CodeUploads(self.blobs, folder / "received"), uploads, self, lambda: FrontProxy("PEM"), "1.2.3"
        )
        self.asked: list[ApiCall] = []
        self.breaks_at = 0
        """Number of the request after which the connection is lost."""

    async def held(self, _caller: ClusterCaller, _namespace: str) -> Held:
        """Allow her to read all versions in `default`."""
        return self.possession.held_in("default")

    def note_code(self, caller: ClusterCaller, namespace: str, digest: str) -> None:
        raise AssertionError

    @property
    def sent(self) -> list[int]:
        """Return the sizes of the chunks that were sent, in bytes."""
        return [len(call.body.partition(b"\n")[2]) for call in self.asked if call.path == file_upload.BLOBS]

    async def ask(self, method: str, rest: str, body: bytes) -> tuple[int, Any]:
        answers: list[Any] = []
        target, _, query = rest.partition("?")
        scope = {
            "type": "http", "method": method, "path": unquote(target), "query_string": query.encode(), "root_path": "",
            "headers": [(b"x-remote-user", b"ann")], "server": None, "client": None, "scheme": "http", "raw_path": b"",
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            answers.append(message)

        await self.app(scope, receive, send)
        return answers[0]["status"], b"".join(message.get("body", b"") for message in answers)

    async def _ask(self, call: ApiCall) -> bytes:
        self.asked.append(call)
        target, more = translate(call.path, call.query)
        status, answer = await self.ask(call.method, http.encode_target(target, more), call.body)
        if self.breaks_at and len(self.asked) >= self.breaks_at and call.until is None:
            raise UnavailableError("the connection is lost")
        if status >= 400:
            raise http.read_error(status, answer)
        return bytes(answer)


@pytest.fixture
def ann(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ann:
    monkeypatch.setattr(file_upload, "PIECE", PIECE)
    return Ann(client, tmp_path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with more files than fit into one chunk, one of them larger than a chunk."""
    folder = tmp_path / "laptop" / "model"
    (folder / "parts").mkdir(parents=True)
    (folder / "model.onnx").write_bytes(onnx_file())
    (folder / "weights.bin").write_bytes(os.urandom(5 * PIECE + 17))
    for number in range(20):
        (folder / "parts" / str(number)).write_bytes(os.urandom(90))
    (folder / "empty").write_bytes(b"")
    (folder / "same").write_bytes((folder / "parts" / "3").read_bytes())
    (folder / "link").symlink_to("weights.bin")
    (folder / "nothing").mkdir()
    return folder


async def test_a_model_of_the_laptop_becomes_a_version_as_it_would_there(ann: Ann, model: Path, client: Any) -> None:
    made = await ann.register_model("mnist", model, metrics={"accuracy": 0.9}, tags={"team": "nlp"})
    assert (made.name, made.version, made.format, made.metrics) == ("mnist", 1, "onnx", {"accuracy": 0.9})
    assert max(ann.sent) <= PIECE
    size = sum(path.stat().st_size for path in model.rglob("*") if path.is_file() and not path.is_symlink())
    assert size < sum(ann.sent) < size + 6000, "each content once, and the manifest"
    (event,) = [event.message for event in client.app.store.events_of("model:mnist")]
    assert event == f"mnist@1 from {model}, sent by ann"
    contents = (await ann.model("mnist@1")).contents
    assert isinstance(contents, tuple)
    files = {file.path: file.sha256 for file in contents}
    assert files["weights.bin"] == hashlib.sha256((model / "weights.bin").read_bytes()).hexdigest()
    # The digest equals that of a registration on one machine.
    store = client.app.models._store
    assert store.register("other", str(model), ModelFacts(), 1.0).digest == store.get("mnist").digest

    before = len(ann.asked)
    assert (await ann.register_model("mnist", model, metrics={"accuracy": 0.9}, tags={"team": "nlp"})).version == 1
    assert sum(ann.sent[before:]) == 0, "nothing is sent that is there"
    (model / "parts" / "0").write_bytes(b"changed")
    assert (await ann.register_model("mnist", model)).version == 2


async def test_what_broke_off_goes_on_where_it_was(ann: Ann, model: Path) -> None:
    ann.breaks_at = 5
    with pytest.raises(UnavailableError, match="the connection is lost"):
        await ann.register_model("mnist", model)
    ann.breaks_at, first = 0, sum(ann.sent[:5])
    assert await ann.models() == (), "nothing is half registered"
    ann.asked.clear()
    assert (await ann.register_model("mnist", model)).version == 1
    size = sum(path.stat().st_size for path in model.rglob("*") if path.is_file() and not path.is_symlink())
    assert sum(ann.sent) < size + 6000 - first + PIECE


async def test_a_cluster_that_is_away_for_a_moment_is_asked_again(ann: Ann, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calm, lost = Ann._ask, [3, 4, 7]

    async def moody(self: Ann, call: ApiCall) -> bytes:
        answer = await calm(self, call)
        if len(self.asked) in lost and call.path == file_upload.BLOBS:
            raise UnavailableError("away")
        return answer

    monkeypatch.setattr(Ann, "_ask", moody)
    assert (await ann.register_model("mnist", model)).version == 1
    assert [call.path for call in ann.asked].count("/v1/health") >= 2


async def test_what_is_refused_there_is_refused_before_anything_is_sent(ann: Ann, model: Path, tmp_path: Path) -> None:
    (model / "more.pkl").write_bytes(pickled_file())
    with pytest.raises(RefusedError, match="allow-pickle"):
        await ann.register_model("mnist", model)
    with pytest.raises(NotFoundError, match="there is no file or folder"):
        await ann.register_model("mnist", tmp_path / "gone")
    with pytest.raises(UsageError, match="is not fetched by a cluster"):
        await ann.register_model("mnist", "s3://bucket/model")
    with pytest.raises(UsageError, match="by reference"):
        await ann.add_data("rows", "s3://bucket/rows", reference=True)
    assert ann.asked == []
    assert (await ann.register_model("mnist", model, allow_pickle=True)).version == 1


async def test_a_run_that_is_not_there_is_told_before_anything_is_sent(ann: Ann, model: Path) -> None:
    with pytest.raises(NotFoundError, match="lenet-3"):
        await ann.register_model("mnist", model, from_run="lenet-3")
    assert ann.sent == []


async def test_how_far_it_is_is_told(ann: Ann, model: Path) -> None:
    heard: list[tuple[int, int]] = []
    body = {"name": "rows", "path": str(model), "reference": False}
    await ann.perform(file_upload.send_dataset(body, namespace="team", told=lambda done, total: heard.append((done, total))))
    assert heard == sorted(heard)
    assert heard[-1][0] == heard[-1][1] > 5 * PIECE


async def test_a_file_that_cannot_be_read_is_named(ann: Ann, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("fairway.registry.external_source.digest_file", denied)
    with pytest.raises(RefusedError, match=r"model/empty cannot be read: Permission denied"):
        await ann.add_data("rows", model)


async def test_a_file_that_changes_while_it_is_sent_is_refused_and_can_be_sent_again(
    ann: Ann, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, calm, wild = tmp_path / "rows.csv", Ann._ask, True
    rows.write_bytes(b"1" * 3 * PIECE)

    async def changing(self: Ann, call: ApiCall) -> bytes:
        if wild and len(self.asked) == 2:
            rows.write_bytes(b"2" * 3 * PIECE)
        return await calm(self, call)

    monkeypatch.setattr(Ann, "_ask", changing)
    with pytest.raises(RefusedError, match="the content sent as"):
        await ann.add_data("rows", rows)
    wild = False
    assert (await ann.add_data("rows", rows)).version == 1
    assert await ann.datasets()


async def test_datasets_of_a_folder_and_of_one_file(ann: Ann, model: Path, tmp_path: Path, client: Any) -> None:
    made = await ann.add_data("rows", model)
    assert (made.version, made.files) == (1, 24)
    assert (await ann.add_data("rows", model)).version == 1
    (tmp_path / "one.csv").write_text("1,2\n")
    one = await ann.add_data("one", tmp_path / "one.csv")
    assert one.files == 1
    assert client.app.datasets.get("one").is_file
    (tmp_path / "void").mkdir()
    with pytest.raises(RefusedError, match="contains no files"):
        await ann.add_data("void", tmp_path / "void")


PLACES = ["/etc/passwd", "file:///etc/passwd", "https://169.254.169.254/latest", "s3://bucket/model"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("more", [{}, {"imported": True}, {"plan": True}])
async def test_no_path_and_no_uri_that_a_caller_names_is_read_there(ann: Ann, place: str, more: dict[str, Any]) -> None:
    root = f"{resource.ROOT}/namespaces/team"
    body = json.dumps({"name": "mnist", "source": place, **more}).encode()
    status, said = await ann.ask("POST", f"{root}/models", body)
    assert (status, "the cluster does not read" in said.decode()) == (400, True)
    for reference in (False, True):
        body = json.dumps({"name": "rows", "path": place, "reference": reference}).encode()
        status, said = await ann.ask("POST", f"{root}/datasets", body)
        assert (status, "the cluster does not read" in said.decode()) == (400, True)


async def test_hostile_names_and_digests_are_refused(ann: Ann, model: Path) -> None:
    root = f"{resource.ROOT}/namespaces/team"
    for digest in ("../../etc/passwd", "A" * 64, "0" * 64):
        body = json.dumps({"name": "mnist", "source": "x/y", "manifest": digest}).encode()
        status, said = await ann.ask("POST", f"{root}/datasets", body.replace(b"source", b"path"))
        assert status in (409, 503), said
    with pytest.raises(UsageError, match=r"model '\.\./mnist'"):
        await ann.register_model("../mnist", model)
    with pytest.raises(UsageError, match=r"dataset '\.\./rows'"):
        await ann.add_data("../rows", model)
    assert ann.asked == [], "a name is looked at first"


async def test_on_one_machine_nothing_is_sent(client: Any, model: Path) -> None:
    answer = await client.post("/v1/models", {"name": "mnist", "source": str(model), "manifest": "0" * 64})
    assert (answer.status, answer.error["message"]) == (400, "the daemon accepts no uploads: it reads files from their path")
    answer = await client.post("/v1/datasets", {"name": "rows", "path": str(model), "manifest": "0" * 64})
    assert answer.status == 400
