"""The replicas that the clients use, and the results of the cases."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from cases import SHARES  # noqa: E402
from replica_process import framework_python, replica  # noqa: E402


def doubler(folder: Path) -> Path:
    """`y = 2 x`, rows of three."""
    folder.mkdir()
    two = numpy_helper.from_array(np.array(2, np.float32), "two")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "two"], ["y"])], "doubler", [x], [y], [two])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, folder / "model.onnx")
    return folder


def python_class(folder: Path, name: str) -> Path:
    """Return one of the classes in the folder `models`."""
    folder.mkdir()
    shutil.copy(HERE / "models" / f"{name}_class.py", folder / "model.py")
    return folder


@pytest.fixture(scope="session")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Addresses by model."""
    base = tmp_path_factory.mktemp("clients")
    with ExitStack() as stack:
        found = {}
        for name, version in (("m", "7"), ("counted", "1")):
            arguments = ("--name", name, "--version", version, "--label", "champion")
            found[name] = stack.enter_context(replica(doubler(base / name), *arguments)).address
        for name in ("types", "slow", "table", "talker", "plain"):
            arguments = ("--name", name, "--runtime", "python", "--label", "champion")
            found[name] = stack.enter_context(replica(python_class(base / name, name), *arguments)).address
        yield found


@pytest.fixture(scope="session")
def results(replicas: dict[str, str]) -> Any:
    """The results of a client's cases, each run once: by case "" or the error, and the client's surface."""
    python = framework_python("clients")

    @cache
    def of(module: str) -> dict[str, Any]:
        if python is None:
            pytest.skip("scripts/framework-venv clients cannot make the environment of the clients")
        command = [python, str(HERE / "run_cases.py"), module, json.dumps(replicas)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
        assert done.returncode == 0, done.stderr[-4000:]
        return dict(json.loads(done.stdout[done.stdout.index('{"found"') :]))

    return of


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the share of passing cases of each client."""
    for line in config.stash.get(SHARES, []):
        terminalreporter.write_line(line)
