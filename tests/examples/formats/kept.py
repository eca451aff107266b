"""Saves a framework's own predictions, to compare a replica with them. Runs under any framework's interpreter."""

import json
import sys
from pathlib import Path

import numpy as np

OUT = Path(sys.argv[1])


def keep(folder, inputs, run, **more):
    """Save the inputs by name, and what `run` returns for all rows together and for each row alone."""
    rows = more.pop("rows", None) or len(next(iter(inputs.values())))
    alone = (
        [run({name: value[place : place + 1] for name, value in inputs.items()}) for place in range(rows)]
        if not more.get("fixed")
        else []
    )
    sides = {"inputs": inputs, "together": run(inputs)}
    if alone:
        sides["alone"] = {name: np.concatenate([np.asarray(each[name]) for each in alone]) for name in alone[0]}
    told, arrays = {"rows": rows, **more}, {}
    for side, values in sides.items():
        told[side] = {}
        for name, value in values.items():
            array = np.asarray(value)
            told[side][name] = {"shape": list(array.shape)}
            if array.dtype.kind in "OSU":
                told[side][name]["texts"] = [
                    each.decode() if isinstance(each, bytes) else str(each) for each in array.ravel().tolist()
                ]
            else:
                arrays[f"{side}.{name}"] = array
    np.savez(OUT / f"{folder}.npz", **arrays)
    (OUT / f"{folder}.json").write_text(json.dumps(told))


def spec(name, word, shape):
    """Describe a tensor of a signature."""
    return {"name": name, "datatype": word, "shape": shape}


def made(name, **card):
    """Create the folder of a model, with a `fairway.json` if it has fields."""
    folder = OUT / name
    folder.mkdir(parents=True)
    if card:
        (folder / "fairway.json").write_text(json.dumps(card))
    return folder
