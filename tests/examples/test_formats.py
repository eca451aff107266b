"""Models of every format, served without conversion: a replica predicts what the framework itself predicts."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairway.registry.formats.model_examination import examine
from fairway.serving.replica.model.loader_choice import listed

HERE = Path(__file__).parent / "formats"
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "integration")]

from asking import Kept, compare  # noqa: E402
from replica_process import ReplicaProcess, framework_python, replica  # noqa: E402


@dataclass(frozen=True)
class Case:
    """One model."""

    name: str
    environment: str
    format: str
    arguments: tuple[str, ...] = ()
    together: bool | None = True
    """Whether its rows are batched; None: requests have no tensors."""
    unsure: bool = False
    """Whether the proof may end without a verdict: all rows have one label, all trial inputs are refused, or time is up."""


CONSENT = ("--allow-pickle",)
ONNX = (
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "object",
)
CASES = [
    *(Case(f"onnx-{dtype}", "onnx", "onnx") for dtype in ONNX),
    Case("onnx-mixing", "onnx", "onnx", together=False),
    Case("onnx-batch-mean", "onnx", "onnx", together=False),
    Case("onnx-fixed", "onnx", "onnx", together=False),
    Case("onnx-dynamic", "onnx", "onnx"),
    *(Case(f"pt2-{dtype}", "torch", "torch-export", CONSENT) for dtype in ("fp32", "bf16", "fp16")),
    *(Case(f"ts-{which}", "torch", "torchscript", CONSENT) for which in ("fp32", "fp64", "dynamic")),
    Case("ts-mixing", "torch", "torchscript", CONSENT, together=False),
    Case("hf-text-classification", "torch", "transformers", unsure=True),
    Case("hf-embeddings", "torch", "transformers", unsure=True),
    Case("hf-generation", "torch", "transformers", together=None),
    Case("skops-pipeline", "tabular", "skops"),
    Case("skops-forest", "tabular", "skops", CONSENT),
    Case("skops-text", "tabular", "skops", unsure=True),
    Case("pickle-two-values", "tabular", "pickle", CONSENT),
    Case("pickle-columns", "tabular", "pickle", CONSENT, unsure=True),
    *(Case(f"joblib-{which}", "tabular", "pickle", CONSENT) for which in ("groups", "transform")),
    Case("xgboost-json", "tabular", "xgboost"),
    Case("xgboost-ubj", "tabular", "xgboost"),
    Case("lightgbm-classes", "tabular", "lightgbm"),
    Case("lightgbm-values", "tabular", "lightgbm"),
    Case("catboost-classes", "tabular", "catboost"),
    Case("catboost-columns", "tabular", "catboost"),
    Case("keras-sequential", "tensorflow", "keras"),
    Case("keras-two-inputs", "tensorflow", "keras"),
    Case("keras-lambda", "tensorflow", "keras", CONSENT),
    *(Case(f"savedmodel-{which}", "tensorflow", "savedmodel", CONSENT) for which in ("dynamic", "texts")),
    Case("savedmodel-mixing", "tensorflow", "savedmodel", CONSENT, together=False),
    Case("gguf-counting", "llm", "gguf", together=None),
    Case("python-class", "onnx", "python", ("--runtime", "python")),
]
SAMPLE = 8
"""The number of models in every test run; `make soak` serves all of them."""
_SEED = os.environ.get("FAIRWAY_SEED", "16")
SAMPLED = sorted(random.Random(_SEED).sample([case.name for case in CASES], SAMPLE))
_table: list[str] = []

Made = Callable[[Case], tuple[Path, str]]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return the folder of a case's model, and the interpreter that built it. Each environment builds all of its models once."""
    folders: dict[str, tuple[Path, str]] = {}
    lock = threading.Lock()

    def make(case: Case) -> tuple[Path, str]:
        with lock:
            if case.environment not in folders:
                python = sys.executable if case.environment == "onnx" else framework_python(case.environment)
                if python is None:
                    pytest.skip(f"the environment of {case.environment} cannot be installed here")
                out = tmp_path_factory.mktemp(case.environment)
                done = subprocess.run(
                    [python, HERE / f"make_{case.environment}.py", out], capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, done.stderr[-2000:]
                folders[case.environment] = (out, python)
        out, python = folders[case.environment]
        return out / case.name, python

    return make


@pytest.fixture(scope="session", autouse=True)
def table() -> Iterator[None]:
    """Print how many responses were compared."""
    yield
    if _table:
        sys.stderr.write(
            "\n" + "\n".join([_LINE.format("model", "format", "clients", "answers", "differ", "batching"), *_table]) + "\n"
        )


_LINE = "{:24} {:14} {:>7} {:>7} {:>6}  {}"


def check(case: Case, made: Made, asks: int) -> None:
    folder, python = made(case)
    consent = "--allow-pickle" in case.arguments
    found = examine(listed(folder), asked="python" if case.format == "python" else "", allow_pickle=consent)
    assert found.format == case.format
    with replica(folder, "--name", "m", "--format", case.format, "--python", python, *case.arguments) as served:
        if case.together is None:
            generated(case, served, Kept(folder))
            return
        status, model, _ = served.ask("GET", "/v2/models/m")
        assert status == 200
        same_signature(found.signature, model)
        verdict = next(line for line in served.words if "batched (" in line).strip()
        assert verdict.startswith("batched") is case.together or (case.unsure and "unknown" in verdict), verdict
        kept = Kept(folder)
        for clients in (1, 64):
            answers, problems = compare(served.address, "m", model, kept, clients, asks if clients > 1 else 2 * kept.rows)
            _table.append(_LINE.format(case.name, case.format, clients, answers, len(problems), verdict.partition(":")[0]))
            assert not problems, problems[:5]
            assert answers == (clients * asks if clients > 1 else 2 * kept.rows)


def same_signature(registered: Any, model: dict[str, Any]) -> None:
    """Assert that the registry shows the signature of the loaded model, as far as the file declares it."""
    for side in ("inputs", "outputs"):
        told = [(spec.name, spec.datatype, list(spec.shape)) for spec in getattr(registered, side)]
        assert not told or told == [(each["name"], each["datatype"], each["shape"]) for each in model[side]]


def generated(case: Case, served: ReplicaProcess, kept: Kept) -> None:
    """Assert that text, generated greedily, is that of the framework."""
    prompts = [each.decode() for each in kept.inputs["prompt"]]
    wanted = [each.decode() for each in kept.together["text"]]
    for clients in (1, 64):
        problems: list[str] = []

        def ask(place: int, problems: list[str] = problems) -> None:
            body = {"model": "m", "prompt": prompts[place], "max_tokens": kept.told["max_tokens"], "temperature": 0}
            status, answer, _ = served.ask("POST", "/v1/completions", body)
            if status != 200 or answer["choices"][0]["text"] != wanted[place]:
                problems.append(f"{place}: {status} {answer}"[:300])

        threads = [threading.Thread(target=ask, args=(number % len(prompts),)) for number in range(max(clients, len(prompts)))]
        for thread in threads:
            thread.start()
            if clients == 1:
                thread.join()
        for thread in threads:
            thread.join()
        _table.append(_LINE.format(case.name, case.format, clients, len(threads), len(problems), "by turns"))
        assert not problems, problems[:5]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", [case for case in CASES if case.name in SAMPLED], ids=lambda case: case.name)
def test_a_sample_of_models_answers_as_its_framework_does(case: Case, made: Made) -> None:
    check(case, made, asks=4)


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_model_answers_as_its_framework_does(case: Case, made: Made) -> None:
    check(case, made, asks=20)


def test_there_are_enough_models_formats_and_datatypes() -> None:
    assert len(CASES) >= 40
    assert len({case.format for case in CASES}) >= 12


CODE = Case("pickle-two-values", "tabular", "pickle", CONSENT)


@pytest.mark.timeout(300)
def test_what_can_run_code_is_not_served_without_consent(made: Made) -> None:
    folder, python = made(CODE)
    ended = ReplicaProcess(folder, "--name", "m", "--format", CODE.format, "--python", python)
    assert ended.end() == 5
    assert "--allow-pickle" in "".join(ended.words)
