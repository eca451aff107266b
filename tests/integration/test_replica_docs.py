"""Every line with curl of docs/protocols.md works unchanged."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from replica_process import ROOT, replica

PAGE = (ROOT / "docs" / "protocols.md").read_text(encoding="utf-8")
LINES = re.findall(r"^curl .*$", PAGE, re.MULTILINE)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_lines_with_curl(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    (tmp_path / "words").mkdir()
    weights = numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "m", [x], [y], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, tmp_path / "mnist" / "model.onnx")
    (tmp_path / "words" / "text.txt").write_text("where the sea takes the ship the sea is")
    shutil.copy(Path(__file__).parent / "replica_models" / "words_class.py", tmp_path / "words" / "model.py")
    assert len(LINES) >= 15
    with (
        replica(tmp_path / "mnist", "--name", "mnist", "--version", "7") as mnist,
        replica(tmp_path / "words", "--name", "words", "--runtime", "python") as words,
    ):
        for line in LINES:
            served = words if "words" in line or line.endswith("/v1/models") else mnist
            command = shlex.split(line.replace("127.0.0.1:8001", f"127.0.0.1:{served.port}"))
            done = subprocess.run([*command, "-sS", "--fail-with-body"], capture_output=True, text=True, check=False, timeout=30)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            if "stream" in line:
                assert done.stdout.endswith("data: [DONE]\n\n")
            elif "infer" in line:
                assert json.loads(done.stdout)["outputs"][0]["data"] == [6.0, 6.0]
