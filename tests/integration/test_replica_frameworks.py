"""Each runtime with a trained model, and what a worker does when things go wrong."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from replica_process import ReplicaProcess, framework_python, replica

MODELS = Path(__file__).parent / "replica_models"


def trained(tmp_path_factory: pytest.TempPathFactory, name: str) -> tuple[Path, str]:
    """Return the folder that a training program filled, and the interpreter that ran it."""
    python = framework_python(name)
    if python is None:
        pytest.skip(f"the environment of {name} cannot be installed here")
    folder = tmp_path_factory.mktemp(name)
    done = subprocess.run([python, MODELS / f"train_{name}.py", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, python


@pytest.fixture(scope="module")
def torch_trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    return trained(tmp_path_factory, "torch")


@pytest.fixture(scope="module")
def tensorflow_trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    return trained(tmp_path_factory, "tensorflow")


def arrays(folder: Path) -> dict[str, np.ndarray]:
    """Return the arrays that the training program saved."""
    with np.load(folder / "digits.npz") as kept:
        return dict(kept)


def recognises_digits(served: ReplicaProcess, name: str, data: Path) -> None:
    """Assert that the replica predicts what the model predicted where it was trained, and correctly."""
    digits = arrays(data)
    status, told, _ = served.ask("GET", f"/v2/models/{name}")
    assert status == 200
    (taken,) = told["inputs"]
    images = digits["images"][:100]
    asked = {
        "inputs": [{"name": taken["name"], "datatype": "FP32", "shape": list(images.shape), "data": images.ravel().tolist()}]
    }
    status, answer, _ = served.ask("POST", f"/v2/models/{name}/infer", asked)
    assert status == 200, answer
    scores = np.array(answer["outputs"][0]["data"], np.float32).reshape(answer["outputs"][0]["shape"])
    np.testing.assert_allclose(scores, digits["logits"][:100], rtol=1e-3, atol=1e-4)
    assert (scores.argmax(1) == digits["labels"][:100]).mean() > 0.8
    status, answer, _ = served.ask("POST", f"/v1/models/{name}:predict", {"instances": images[:2].tolist()})
    assert (status, len(answer["predictions"])) == (200, 2)


@pytest.mark.framework("torch")
@pytest.mark.timeout(300)
def test_a_program_of_torch_export(torch_trained: tuple[Path, str]) -> None:
    folder, python = torch_trained
    with replica(folder / "torch", "--name", "digits", "--allow-pickle", "--python", python) as served:
        recognises_digits(served, "digits", folder)
        status, answer, _ = served.ask("POST", "/v1/models/digits:predict", {"instances": [[0.5] * 63]})
        assert (status, "[1, 63]" in answer["error"]) == (400, True)
    assert served.process.returncode == 0


@pytest.mark.framework("torch")
def test_the_same_weights_as_onnx(torch_trained: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = torch_trained
    weights = arrays(folder)
    nodes = [
        helper.make_node("Gemm", ["image", "0_weight", "0_bias"], ["hidden"], transB=1),
        helper.make_node("Relu", ["hidden"], ["active"]),
        helper.make_node("Gemm", ["active", "2_weight", "2_bias"], ["scores"], transB=1),
    ]
    tensors = [numpy_helper.from_array(weights[name], name) for name in ("0_weight", "0_bias", "2_weight", "2_bias")]
    taken = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 64])
    given = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10])
    model = helper.make_model(
        helper.make_graph(nodes, "digits", [taken], [given], tensors), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 9
    onnx.save(model, tmp_path / "model.onnx")
    with replica(tmp_path, "--name", "digits") as served:
        recognises_digits(served, "digits", folder)


@pytest.mark.framework("torch")
def test_a_python_class(torch_trained: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = torch_trained
    shutil.copy(folder / "digits.npz", tmp_path)
    shutil.copy(MODELS / "digits_class.py", tmp_path / "model.py")
    with replica(tmp_path, "--name", "digits", "--runtime", "python") as served:
        status, answer, _ = served.ask("POST", "/v1/models/digits:predict", {"instances": [[0.0] * 64, [1.0] * 64]})
        assert status == 200
        assert [sorted(row) for row in answer["predictions"]] == [["digit", "scores"]] * 2
        status, answer, _ = served.ask("POST", "/v1/models/digits:predict", {"instances": [[-1.0] * 64]})
        assert (status, "darker than black" in answer["error"]) == (400, True)


@pytest.mark.framework("torch")
@pytest.mark.timeout(300)
def test_a_program_with_code_in_its_weights_is_not_loaded(torch_trained: tuple[Path, str], tmp_path: Path) -> None:
    folder, python = torch_trained
    mark = tmp_path / "ran"
    evil = b"cposix\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR."
    changed = 0
    (tmp_path / "model").mkdir()
    with (
        zipfile.ZipFile(folder / "torch" / "model.pt2") as source,
        zipfile.ZipFile(tmp_path / "model" / "model.pt2", "w") as target,
    ):
        for entry in source.infolist():
            data = source.read(entry)
            if b"ctorch" in data or data[:2] in (b"PK", b"\x80\x02"):
                data, changed = evil, changed + 1
            target.writestr(entry.filename, data)
    assert changed, "nothing of the archive is a pickle; the test needs another way in"
    ended = ReplicaProcess(tmp_path / "model", "--name", "digits", "--allow-pickle", "--python", python)
    assert ended.end() == 2
    assert not mark.exists()
    assert "could not load it" in "".join(ended.words)


@pytest.mark.framework("tensorflow")
@pytest.mark.timeout(300)
def test_a_saved_model(tensorflow_trained: tuple[Path, str]) -> None:
    folder, python = tensorflow_trained
    with replica(folder / "savedmodel", "--name", "digits", "--allow-pickle", "--python", python) as served:
        recognises_digits(served, "digits", folder)
