"""Models whose author embedded code: none of it runs without consent, and each refusal names the flag that gives it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from replica_process import ReplicaProcess, framework_python

from fairway.errors import RefusedError
from fairway.registry.blob import BlobStore
from fairway.registry.model import ModelRegistry
from fairway.state.model import ModelFacts
from fairway.testing.builder.model_file import field, pickled_file

MODELS = Path(__file__).parent / "replica_models"
FLAG = "--allow-pickle"


class Evil:
    """A model, and the file that its code would write."""

    def __init__(self, folder: Path, canary: Path, python: str = "") -> None:
        self.folder, self.canary, self.python = folder, canary, python
        self.arguments = ("--python", python) if python else ()

    def serve(self, *arguments: str) -> tuple[int, str]:
        """Return the exit code and output of a replica that loads it; one that serves is stopped."""
        served = ReplicaProcess(self.folder, "--name", "m", *self.arguments, *arguments)
        code = served.end()
        return code, "".join(served.words)

    def is_refused(self, home: Path) -> None:
        """Assert that it is neither registered nor served, and that none of its code ran."""
        models = ModelRegistry(home, BlobStore(home / "blobs"))
        with pytest.raises(RefusedError) as refusal:
            models.register("m", str(self.folder), ModelFacts(), 1.0)
        assert FLAG in str(refusal.value)
        code, words = self.serve()
        assert code == 5, words
        assert FLAG in words
        assert not self.canary.exists()


def built(script: str, framework: str, folder: Path, canary: Path, told: str) -> str:
    """Run the program that creates a model; return the interpreter with its framework."""
    python = framework_python(framework)
    if python is None:
        pytest.skip(f"the environment of {framework} cannot be installed here")
    done = subprocess.run([python, MODELS / script, folder, told], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    canary.unlink(missing_ok=True)
    return python


@pytest.fixture(scope="module")
def torch_evil(tmp_path_factory: pytest.TempPathFactory) -> Evil:
    folder = tmp_path_factory.mktemp("evil-torch")
    canary = folder / "canary"
    python = built("evil_torch.py", "torch", folder / "model", canary, f"touch {canary}")
    return Evil(folder / "model", canary, python)


@pytest.fixture(scope="module")
def tensorflow_evil(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Evil]]:
    folder = tmp_path_factory.mktemp("evil-tensorflow")
    canary = folder / "canary"
    python = built("evil_tensorflow.py", "tensorflow", folder, canary, str(canary))
    return {name: Evil(folder / name, canary, python) for name in ("savedmodel", "keras", "h5")}


@pytest.fixture(params=["torch", "savedmodel"])
def program(request: pytest.FixtureRequest) -> Evil:
    """A model that can be served once its author is trusted."""
    if request.param == "torch":
        return request.getfixturevalue("torch_evil")
    return request.getfixturevalue("tensorflow_evil")[request.param]


@pytest.mark.framework("torch")
@pytest.mark.framework("tensorflow")
@pytest.mark.timeout(400)
def test_programs_and_saved_models(program: Evil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program.is_refused(tmp_path)
    # With consent it is loaded, and the confinement denies it access to the file.
    _, words = program.serve(FLAG)
    if "worker: confined" in words:
        assert not program.canary.exists(), words
    else:
        assert "confined: " in words
        program.canary.unlink(missing_ok=True)
    # With consent and without confinement the code runs, which shows that the sample is really hostile.
    monkeypatch.setenv("FAIRWAY_CONFINE", "never")
    _, words = program.serve(FLAG)
    assert program.canary.exists(), words
    assert "not confined: FAIRWAY_CONFINE=never" in words
    program.canary.unlink()


@pytest.mark.framework("tensorflow")
@pytest.mark.parametrize("kind", ["keras", "h5"])
@pytest.mark.timeout(300)
def test_a_lambda_of_keras(tensorflow_evil: dict[str, Evil], kind: str, tmp_path: Path) -> None:
    evil = tensorflow_evil[kind]
    evil.is_refused(tmp_path)
    load = f"import keras; keras.saving.load_model({str(next(evil.folder.iterdir()))!r}, safe_mode=False)"
    load += "(__import__('numpy').ones((1, 3)))"
    subprocess.run([evil.python, "-c", load], capture_output=True, check=False)
    assert evil.canary.exists(), "the sample is harmless"
    evil.canary.unlink()


def test_a_pickle(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    canary = tmp_path / "canary"
    (folder / "model.pkl").write_bytes(b"cposix\nsystem\n(S'touch " + str(canary).encode() + b"'\ntR.")
    Evil(folder, canary).is_refused(tmp_path)
    (folder / "model.pkl").unlink()
    (folder / "model.pt").write_bytes(pickled_file())
    Evil(folder, canary).is_refused(tmp_path)


def outside(where: str, secret: str) -> bytes:
    """Return an ONNX model that predicts the content of a file outside of its folder, hidden in one of several places."""
    value = numpy_helper.from_array(np.zeros(4, np.float32), "w")
    given = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    taken = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    node = helper.make_node("Add", ["x", "w"], ["y"])
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    value.ClearField("raw_data")
    value.data_location = TensorProto.EXTERNAL
    value.external_data.add(key="location", value=secret)
    if where == "function":
        body = [helper.make_node("Constant", [], ["w"], value=value), node]
        function = helper.make_function("own", "Leak", ["x"], ["y"], body, opset[:1])
        graph = helper.make_graph([helper.make_node("Leak", ["x"], ["y"], domain="own")], "g", [taken], [given])
        model = helper.make_model(graph, opset_imports=opset, functions=[function])
    else:
        model = helper.make_model(helper.make_graph([node], "g", [taken], [given], [value]), opset_imports=opset[:1])
    model.ir_version = 9
    content = model.SerializeToString()
    return content + field(7, b"") if where == "two graphs" else content


@pytest.mark.parametrize("where", ["graph", "two graphs", "function"])
def test_weights_outside_of_an_onnx_model(where: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"sixteen letters!")
    for secret in ("../secret", str(tmp_path / "secret")):
        (folder / "model.onnx").write_bytes(outside(where, secret))
        onnx.load(folder / "model.onnx", load_external_data=False)  # protobuf reads it
        Evil(folder, tmp_path / "canary").is_refused(tmp_path)
        code, words = Evil(folder, tmp_path / "canary").serve(FLAG)
        assert (code, "does not permit that" in words) == (5, True)


@pytest.mark.framework("tabular")
@pytest.mark.timeout(200)
def test_a_pickle_with_consent_runs_confined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = framework_python("tabular")
    if python is None:
        pytest.skip("the environment of tabular cannot be installed here")
    folder, canary = tmp_path / "model", tmp_path / "canary"
    folder.mkdir()
    (folder / "model.pkl").write_bytes(b"cposix\nsystem\n(S'touch " + str(canary).encode() + b"'\ntR.")
    evil = Evil(folder, canary, python)
    evil.is_refused(tmp_path)
    _, words = evil.serve(FLAG)
    assert "has neither predict nor transform" in words
    if "worker: confined" in words:
        assert not canary.exists(), words
    canary.unlink(missing_ok=True)
    monkeypatch.setenv("FAIRWAY_CONFINE", "never")
    evil.serve(FLAG)
    assert canary.exists(), "the sample is harmless"


def test_code_of_the_author_in_a_folder_of_transformers(tmp_path: Path) -> None:
    folder, canary = tmp_path / "model", tmp_path / "canary"
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config", "AutoModel": "mine.Model"}}'
    )
    (folder / "mine.py").write_text(f"open({str(canary)!r}, 'w')\n")
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    Evil(folder, canary).is_refused(tmp_path)
