"""One worker of a batch prediction: takes shards until all are done.

Shards are leased (`fairway.runtime.shards`), each is one file that is written whole: a worker that is killed leaves no gap,
because its shard goes to another, and no double, because that one writes the same file.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fairway.errors import FairwayError, UsageError
from fairway.runtime import context, contract, metrics
from fairway.runtime.shards import Shard, shards
from fairway.serving.predict.parts import Parts
from fairway.serving.predict.rows import ONLY, Array, open_rows
from fairway.serving.replica.datatypes import DTYPES, of_texts
from fairway.serving.replica.folder import find
from fairway.serving.replica.runtimes.loading import load
from fairway.state.model import Signature, TensorSpec


def main(arguments: list[str] | None = None) -> int:
    """Predict; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fairway.serving.predict", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--folder", type=Path, required=True, help="folder of the model version")
    add("--format", default="", help="its format; default: found from the files")
    add("--runtime", default="auto")
    add("--python", default="", help="interpreter for runtimes other than onnx")
    add("--allow-pickle", action="store_true", help="load files that can run code of their author")
    add("--data", type=Path, required=True, help="a file or a folder of rows")
    add("--out", type=Path, required=True, help="the folder of the predictions")
    add("--shard", type=int, default=1000, help="rows of a shard")
    add("--batch", type=int, default=256, help="rows that the model gets at once")
    given = parser.parse_args(arguments)
    try:
        predict(given)
    except FairwayError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


def predict(given: argparse.Namespace) -> None:
    """Work through the shards of the data."""
    rows = open_rows(given.data)
    runtime = load(find(given.folder, given.format, given.runtime, allow_pickle=given.allow_pickle), given.python, threads=1)
    parts = Parts(given.out, text=rows.is_text)
    done = 0
    try:
        for shard in taken(len(rows), given.shard):
            outputs: list[list[Array]] = []
            for start in range(shard.start, shard.stop, given.batch):
                asked = arranged(runtime.signature, rows.read(start, min(start + given.batch, shard.stop)))
                outputs.append(runtime.run(asked))
                shard.renew()
            names = [spec.name for spec in runtime.signature.outputs]
            joined = {name: np.concatenate([batch[place] for batch in outputs]) for place, name in enumerate(names)}
            parts.write(shard.start, joined)
            done += len(shard)
            metrics.report(step=done, rows=done)
            sys.stderr.write(f"{context.index()}: rows {shard.start:,} to {shard.stop:,} of {len(rows):,}\n")
    finally:
        runtime.close()


def taken(count: int, size: int) -> Iterable[Shard]:
    """The shards that this worker takes: the next free one each time; where workers share no folder, every so many-th."""
    if not os.environ.get(contract.APART):
        return shards(count, size=size)
    workers = len(context.peers().get(context.role(), ())) or 1
    starts = range(context.index() * size, count, workers * size)
    return [Shard(range(start, min(start + size, count)), None) for start in starts]


def arranged(signature: Signature, rows: dict[str, Array]) -> list[Array]:
    """The arrays in the order and of the type of the model's inputs; a row that is flat takes the input's shape."""
    if rows.keys() == {ONLY} and len(signature.inputs) == 1:
        rows = {signature.inputs[0].name: rows[ONLY]}
    missing = [spec.name for spec in signature.inputs if spec.name not in rows]
    if missing:
        message = f"the data has no {', '.join(missing)}; it has {', '.join(sorted(rows)) or 'nothing'}"
        raise UsageError(message, fix="name the arrays after the model's inputs")
    return [_shaped(spec, rows[spec.name]) for spec in signature.inputs]


def _bytes_of(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _shaped(spec: TensorSpec, array: Array) -> Array:
    if spec.datatype == "BYTES":
        return of_texts([_bytes_of(value) for value in array.ravel().tolist()]).reshape(array.shape)
    typed: Array = array.astype(DTYPES[spec.datatype], copy=False)
    free = sum(length < 0 for length in spec.shape[1:])
    if typed.ndim != len(spec.shape) and free <= 1:
        with contextlib.suppress(ValueError):
            typed = typed.reshape(len(array), *spec.shape[1:])
    if typed.ndim == len(spec.shape) and all(
        wanted in (-1, got) for wanted, got in zip(spec.shape[1:], typed.shape[1:], strict=True)
    ):
        return typed
    message = f"rows of shape {list(array.shape[1:])} do not fit the input {spec.name!r} of shape {list(spec.shape)}"
    raise UsageError(message, fix="give rows of the model's shape")


if __name__ == "__main__":
    sys.exit(main())
