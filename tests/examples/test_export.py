"""`fairway.export` with real frameworks: the exported model predicts as the live one did, on a server without the framework."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from pathlib import Path

import pytest

from fairway.registry.blob import BlobStore
from fairway.registry.model import ModelRegistry
from fairway.state.model import ModelFacts, TensorSpec

SOURCE = Path(__file__).resolve().parents[2] / "src"

TORCH = """
import sys
import numpy, torch, fairway
from fairway.runtime.model_export import exported_model, exporter
torch.manual_seed(0)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(4, 8)
        self.drop = torch.nn.Dropout(0.5)
        self.last = torch.nn.Linear(8, 3)
    def forward(self, image):
        return self.last(self.drop(torch.relu(self.hidden(image))))

class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(10, 4)
    def forward(self, ids, weight):
        found = self.table(ids)
        return {"sum": (found * weight[:, None, None]).sum(dim=(1, 2)), "shape": found}

class OneBatch(torch.nn.Module):
    def forward(self, x):
        return x.reshape(2, 6) + 1 if len(x) == 2 else x.sum(dim=(0, 1))

class Random(torch.nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)
"""


def export(python: str, folder: Path, code: str, **env: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    variables = {name: value for name, value in os.environ.items() if not name.startswith("FAIRWAY_")}
    return subprocess.run(
        [python, "-c", code],
        cwd=folder,
        env={**variables, "PYTHONPATH": str(SOURCE), "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", **env},
        capture_output=True,
        text=True,
        check=False,
    )


def exported(python: str, folder: Path, code: str, **env: str) -> tuple[Path, str]:
    ended = export(python, folder, code, **env)
    assert ended.returncode == 0, ended.stderr
    return folder / "outputs" / "model", ended.stderr


@pytest.mark.framework("torch")
def test_a_module_becomes_onnx_that_answers_the_same_elsewhere(python: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    numpy = pytest.importorskip("numpy")
    code = f"""{TORCH}
model = torch.nn.DataParallel(Net()).train()
folder = fairway.runtime.export(model, torch.randn(1, 4), metrics={{"accuracy": 0.9}})
assert model.training and model.module.drop.training
x = torch.randn(7, 4)
numpy.save("x.npy", x.numpy())
numpy.save("y.npy", model.module.eval()(x).detach().numpy())
(folder / "labels.txt").write_text("a")
assert fairway.export(model, torch.randn(3, 4), metrics={{"accuracy": 0.95}}) == folder
"""
    folder, said = exported(python, tmp_path / "work", code)
    assert said.count("exported as onnx; its answers differ by at most") == 2
    assert sorted(path.name for path in folder.iterdir()) == ["fairway.json", "labels.txt", "model.onnx"]
    made = ModelRegistry(tmp_path, BlobStore(tmp_path / "blobs")).register("net", str(folder), ModelFacts(made_here=True), 1.0)
    assert (made.format, made.metrics) == ("onnx", {"accuracy": 0.95})
    assert made.signature.inputs == (TensorSpec("image", "FP32", (-1, 4)),)
    assert made.signature.outputs == (TensorSpec("output", "FP32", (-1, 3)),)
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"image": numpy.load(tmp_path / "work" / "x.npy")})
    assert numpy.allclose(found, numpy.load(tmp_path / "work" / "y.npy"), atol=1e-5)


ODD = f"""{TORCH}
fairway.export(Two(), {{"ids": torch.tensor([[1, 2], [3, 4]]), "weight": torch.ones(2)}}, name="two")
fairway.export(OneBatch(), torch.randn(2, 3, 2), name="one-batch")
try:
    fairway.export(Random(), torch.randn(2, 3), name="random")
except exported_model.ExportError as problem:
    open("random.txt", "w").write(str(problem))
find = exported_model.installed
exported_model.installed = lambda *modules: "onnxruntime" not in modules and find(*modules)
fairway.export(Net(), torch.randn(2, 4), name="unchecked")
exporter.torch_exporter.installed = lambda *modules: False
fairway.export(Net(), torch.randn(2, 4), name="program")
"""
"""Less simple models, and environments with fewer packages: all in one process, since imports take most of the time."""


@pytest.mark.framework("torch")
def test_models_that_are_less_simple(python: str, tmp_path: Path) -> None:
    folder, said = exported(python, tmp_path / "work", ODD)
    outputs, models = folder.parent, ModelRegistry(tmp_path, BlobStore(tmp_path / "blobs"))

    two = models.register("two", str(outputs / "two"), ModelFacts(made_here=True), 1.0)
    assert two.signature.inputs == (TensorSpec("ids", "INT64", (-1, 2)), TensorSpec("weight", "FP32", (-1,)))
    assert [each.shape for each in two.signature.outputs] == [(-1,), (-1, 2, 4)]

    one_batch = models.register("one", str(outputs / "one-batch"), ModelFacts(made_here=True), 1.0)
    assert one_batch.signature.inputs[0].shape == (2, 3, 2)
    assert "not exported as onnx (any batch)" in said

    refusal = (tmp_path / "work" / "random.txt").read_text()
    assert refusal.startswith("the model cannot be exported")
    assert "does it use random numbers" in refusal
    assert list((outputs / "random").iterdir()) == []

    assert "exported as onnx; it could not be checked here" in said
    assert json.loads((outputs / "unchecked" / "fairway.json").read_text())["checked"] is None

    assert "exported as torch-export; its answers differ" in said
    program = models.register("program", str(outputs / "program"), ModelFacts(made_here=True), 1.0)
    assert (program.format, program.signature.inputs) == ("torch-export", (TensorSpec("image", "FP32", (-1, 4)),))


TRAIN = """
import numpy, torch, fairway
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
images, labels = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
mine = torch.arange(fairway.rank(), 1500, fairway.world_size())
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(150):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(images[mine]), labels[mine])
    loss.backward()
    optimizer.step()
accuracy = float((model(images[1500:]).argmax(1) == labels[1500:]).float().mean())
fairway.report(step=150, loss=float(loss), accuracy=accuracy)
fairway.export(model, images[:4])
if fairway.rank() == 0:
    numpy.savez(fairway.output("model").parent.parent / "held-out.npz", x=images[1500:].numpy(), y=labels[1500:].numpy())
dist.destroy_process_group()
"""


@pytest.mark.framework("torch")
def test_a_trained_model_becomes_a_version_that_answers_without_torch(python: str, home: Path, tmp_path: Path) -> None:
    from gang import GOOD, call

    onnxruntime = pytest.importorskip("onnxruntime")
    numpy = pytest.importorskip("numpy")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(TRAIN)
    document = tmp_path / "code" / "job.yaml"
    document.write_text(
        f"kind: TrainingJob\nname: digits\ncode: .\nenvironment: {{python: {python}}}\ncommand: python train.py --lr 0.01\n"
        "replicas: 2\noutputs: {model: digits}\n"
    )
    code, output = call(home, "run", str(document), timeout=110)
    assert code == 0, output
    made = json.loads(call(home, "model", "get", "digits", "-o", "json")[1])
    assert (made["version"], made["format"], made["lineage"]["run"]) == (1, "onnx", "default/digits-1")
    assert made["lineage"]["parameters"]["lr"] == "0.01"
    assert len(made["lineage"]["code"]) == 64
    assert made["metrics"]["accuracy"] > GOOD
    assert call(home, "model", "pull", "digits@1", str(tmp_path / "pulled"))[0] == 0
    session = onnxruntime.InferenceSession(str(tmp_path / "pulled" / "model.onnx"), providers=["CPUExecutionProvider"])
    held_out = numpy.load(home / "jobs" / "default" / "digits-1" / "held-out.npz")
    (answers,) = session.run(None, {made["signature"]["inputs"][0]["name"]: held_out["x"]})
    assert float((answers.argmax(1) == held_out["y"]).mean()) == pytest.approx(made["metrics"]["accuracy"], abs=1e-6)


@pytest.mark.framework("torch")
def test_only_rank_0_writes(python: str, tmp_path: Path) -> None:
    code = TORCH + "assert fairway.export(Net(), torch.randn(2, 4)) is None"
    ranked = {"FAIRWAY_JOB": "a-1", "FAIRWAY_RANK": "1", "FAIRWAY_WORLD_SIZE": "2"}
    assert export(python, tmp_path / "work", code, **ranked).returncode == 0
    assert not (tmp_path / "work" / "outputs").exists()


@pytest.mark.framework("tensorflow")
def test_a_keras_model_becomes_a_saved_model(python: str, tmp_path: Path) -> None:
    code = """
import keras, numpy, fairway
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((4,), name="pixels"), keras.layers.Dropout(0.5), keras.layers.Dense(3)])
fairway.export(model, numpy.ones((2, 4), "float32"), metrics={"loss": 0.5})
"""
    folder, said = exported(python, tmp_path / "work", code)
    assert "exported as savedmodel; its answers differ by at most" in said
    made = ModelRegistry(tmp_path, BlobStore(tmp_path / "blobs")).register("net", str(folder), ModelFacts(made_here=True), 1.0)
    assert (made.format, made.metrics) == ("savedmodel", {"loss": 0.5})
    assert made.signature.inputs == (TensorSpec("pixels", "FP32", (-1, 4)),)
    assert [(each.datatype, each.shape) for each in made.signature.outputs] == [("FP32", (-1, 3))]


@pytest.mark.framework("jax")
def test_a_jax_function_without_an_exporter_says_what_is_missing(python: str, tmp_path: Path) -> None:
    code = "import jax, fairway\nfairway.export(lambda x: x + 1, jax.numpy.ones((2, 3)))"
    ended = export(python, tmp_path / "work", code)
    assert ended.returncode != 0
    assert "pip install jax2onnx" in ended.stderr


JAX = """
import numpy, jax, fairway
from fairway.runtime.model_export import jax_exporter
first, last = (jax.random.normal(jax.random.key(seed), shape) for seed, shape in ((0, (4, 8)), (1, (8, 3))))
def net(x):
    return jax.nn.softmax(jax.numpy.tanh(x @ first) @ last)
def two(x, ids):
    return {"sum": x.sum(axis=1), "found": last[ids]}
def many(x):
    return tuple(x + place for place in range(11))
def one_batch(x):
    return x.reshape(10, 2) if len(x) == 5 else x.sum(axis=0)
x = numpy.random.default_rng(0).standard_normal((5, 4)).astype("float32")
def all_ways(folder):
    fairway.export(jax.jit(net), x, name=f"{folder}-net", metrics={"loss": 0.5})
    fairway.export(two, (x, numpy.arange(5, dtype="int32")), name=f"{folder}-two")
    fairway.export(many, x, name=f"{folder}-many")
    fairway.export(one_batch, x, name=f"{folder}-batch")
numpy.savez("asked.npz", x=x[:3], answers=net(x[:3]))
all_ways("onnx")
find = jax_exporter.installed
jax_exporter.installed = lambda *modules: "jax2onnx" not in modules and find(*modules)
all_ways("savedmodel")
"""


@pytest.mark.framework("jax-export")
@pytest.mark.timeout(300)
def test_jax_functions_become_onnx_and_saved_models(python: str, home: Path, tmp_path: Path) -> None:
    from gang import call

    onnxruntime = pytest.importorskip("onnxruntime")
    numpy = pytest.importorskip("numpy")
    folder, said = exported(python, tmp_path / "work", JAX)
    outputs, models = folder.parent, ModelRegistry(tmp_path, BlobStore(tmp_path / "blobs"))
    for format in ("onnx", "savedmodel"):
        assert said.count(f"exported as {format}; its answers differ by at most") == 4
        net = models.register(f"{format}-net", str(outputs / f"{format}-net"), ModelFacts(made_here=True), 1.0)
        assert (net.format, net.metrics) == (format, {"loss": 0.5})
        assert net.signature.inputs == (TensorSpec("input", "FP32", (-1, 4)),)
        assert net.signature.outputs == (TensorSpec("output", "FP32", (-1, 3)),)
        two = models.register(f"{format}-two", str(outputs / f"{format}-two"), ModelFacts(made_here=True), 1.0)
        assert two.signature.inputs == (TensorSpec("input_0", "FP32", (-1, 4)), TensorSpec("input_1", "INT32", (-1,)))
        assert two.signature.outputs == (TensorSpec("found", "FP32", (-1, 3)), TensorSpec("sum", "FP32", (-1,)))
        batch = models.register(f"{format}-batch", str(outputs / f"{format}-batch"), ModelFacts(made_here=True), 1.0)
        assert batch.signature.inputs[0].shape == (5, 4)
        assert f"not exported as {format} (any batch)" in said
    session = onnxruntime.InferenceSession(str(outputs / "onnx-net" / "model.onnx"), providers=["CPUExecutionProvider"])
    asked = numpy.load(tmp_path / "work" / "asked.npz")
    (found,) = session.run(None, {"input": asked["x"]})
    assert numpy.allclose(found, asked["answers"], atol=1e-5)

    code, output = call(home, "model", "register", "net", str(outputs / "savedmodel-net"))
    assert (code, "--allow-pickle" in output) == (5, True), output
    assert call(home, "model", "register", "net", str(outputs / "savedmodel-net"), "--allow-pickle")[0] == 0
    code, output = call(home, "serve", "net", "--python", python, timeout=120)
    assert code == 0, output
    url = json.loads(call(home, "get", "service/net", "-o", "json")[1])["url"]
    body = json.dumps({"instances": asked["x"].tolist()}).encode()
    with urllib.request.urlopen(f"{url}/v1/models/net:predict", body, timeout=60) as answer:
        assert numpy.allclose(json.load(answer)["predictions"], asked["answers"], atol=1e-5)
    assert call(home, "delete", "service/net")[0] == 0
