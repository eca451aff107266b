"""`python -m mlflow_cases URI OUT [--only WORD] [--reference]`: run the cases, write all outcomes as JSON."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

from mlflow_cases import artifacts, experiments, fluent, logged, registry, rest, runs, searches, unavailable
from mlflow_cases.table import CASES, run_all

MODULES = (experiments, runs, searches, registry, logged, artifacts, fluent, rest, unavailable)
"""All modules with cases: a module that is not imported would put none into the table."""


def onnx_model(folder: Path) -> Path:
    """A model that adds its input to itself."""
    import onnx
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "twice", ends[:1], ends[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "model.onnx"
    onnx.save(made, str(path))
    return path


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser()
    parser.add_argument("uri")
    parser.add_argument("out")
    parser.add_argument("--only", default="")
    parser.add_argument("--reference", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        token = os.environ.get("MLFLOW_TRACKING_TOKEN", "")
        found = run_all(asked.uri, token, path, onnx_model(path), asked.only, reference=asked.reference)
    listed = [each.name for each in CASES]
    Path(asked.out).write_text(json.dumps({"listed": listed, "outcomes": [asdict(each) for each in found]}))
    for each in found:
        if not each.passed:
            print(f"FAILED {each.case}\n       {each.why}")
    good = sum(each.passed for each in found)
    print(f"{good} of {len(found)} cases of {len({each.method for each in found})} methods passed; {len(CASES)} are listed")


if __name__ == "__main__":
    main()
