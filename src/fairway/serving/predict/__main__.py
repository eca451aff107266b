"""One worker of a batch prediction: takes shards until all are done.

Shards are leased (`fairway.runtime.shards`), and each is one file that is written atomically. A worker that is killed leaves no
gap, because another worker takes its shard, and no duplicate, because that worker writes the same file.
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
from fairway.runtime import metrics, task_context, task_contract
from fairway.runtime.shards import Shard, shards
from fairway.serving.predict.dataset_row import ONLY, Array, DatasetRows, open_rows
from fairway.serving.predict.image_row import read_rules
from fairway.serving.predict.parquet_row import ParquetRowFile
from fairway.serving.predict.prediction_batch import at_once, check_outputs, check_piece, typed
from fairway.serving.predict.prediction_part import ENDINGS, PredictionFolder
from fairway.serving.replica.model.datatype import of_texts
from fairway.serving.replica.model.version_folder import find
from fairway.serving.replica.runtimes.loading import load
from fairway.serving.replica.runtimes.runtime import ModelRuntime
from fairway.state.model import ModelSignature, TensorSpec


def main(arguments: list[str] | None = None) -> int:
    """Parse the arguments and predict; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fairway.serving.predict", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--folder", type=Path, required=True, help="folder of the model version")
    add("--format", default="", help="format of the model; default: detected from its files")
    add("--runtime", default="auto")
    add("--python", default="", help="interpreter for runtimes other than onnx")
    add("--allow-pickle", action="store_true", help="load files that can execute arbitrary code, such as pickles")
    add("--data", type=Path, required=True, help="file or folder with the rows")
    add("--out", type=Path, required=True, help="folder for the predictions")
    add("--shard", type=int, default=1000, help="rows per shard")
    add("--threads", type=int, default=1, help="threads for each run of the model")
    add("--write", choices=("auto", *ENDINGS), default="auto", help="format of the predictions; auto: that of the rows")
    add("--batch", type=int, default=256, help="rows for each run of the model")
    options = parser.parse_args(arguments)
    try:
        predict(options)
    except FairwayError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


def predict(given: argparse.Namespace) -> None:
    """Predict shards of the data until none is left."""
    rows = open_rows(given.data)
    parts = PredictionFolder(given.out, form_of(given.write, rows))
    done = parts.rows(len(rows), given.shard)
    # Reported at once, so that a restarted worker does not appear to begin from zero.
    resumed = f", {done:,} of them already predicted" if done else ""
    sys.stderr.write(f"{task_context.index()}: {len(rows):,} rows{resumed}\n")
    _report(done, len(rows))
    version = find(given.folder, given.format, given.runtime, allow_pickle=given.allow_pickle)
    runtime = load(version, given.python, given.threads)
    try:
        for images in rows.images:
            images.fit(runtime.signature.inputs, read_rules(given.folder))
        batch = at_once(runtime, version.batching, given.batch)
        for shard in taken(len(rows), given.shard):
            parts.write(shard.start, _predicted(runtime, rows, shard, batch), rows.names(shard.start, shard.stop))
            done = parts.rows(len(rows), given.shard)
            _report(done, len(rows))
            span = f"rows {shard.start:,} to {shard.stop:,} of {len(rows):,}"
            sys.stderr.write(f"{task_context.index()}: {span}; {done / len(rows):.0%} done\n")
    finally:
        runtime.close()


def _predicted(runtime: ModelRuntime, rows: DatasetRows, shard: Shard, batch: int) -> dict[str, Array]:
    """Return the outputs for the rows of a shard."""
    outputs: list[list[Array]] = []
    for start in range(shard.start, shard.stop, batch):
        stop = min(start + batch, shard.stop)
        check_piece(runtime.signature, stop - start)
        piece = runtime.run(arranged(runtime.signature, rows.read(start, stop)))
        check_outputs(runtime.signature, piece, stop - start)
        outputs.append(piece)
        shard.renew()
    names = [spec.name for spec in runtime.signature.outputs]
    return {name: np.concatenate([arrays[index] for arrays in outputs]) for index, name in enumerate(names)}


def form_of(asked: str, rows: DatasetRows) -> str:
    """Return the format in which predictions are written.

    `asked`, unless it is "auto": then JSON lines for text, Parquet for Parquet, and arrays for arrays.
    """
    if asked != "auto":
        return asked
    if rows.is_text:
        return "jsonl"
    return "parquet" if all(isinstance(file, ParquetRowFile) for file in rows.files) else "npz"


def _report(done: int, count: int) -> None:
    """Report the progress of all workers, as far as their files are visible to this one."""
    metrics.report(step=done, rows=done, part=done / count if count else 1.0)


def taken(count: int, size: int) -> Iterable[Shard]:
    """Return the shards for this worker: each time the next free one.

    Workers without a shared folder cannot lease shards: of N workers, each takes every Nth shard.
    """
    if not os.environ.get(task_contract.APART):
        return shards(count, size=size)
    workers = len(task_context.peers().get(task_context.role(), ())) or 1
    starts = range(task_context.index() * size, count, workers * size)
    return [Shard(range(start, min(start + size, count)), None) for start in starts]


def arranged(signature: ModelSignature, rows: dict[str, Array]) -> list[Array]:
    """Return the arrays in the order and type of the model's inputs; flat rows are reshaped to the input's shape."""
    if rows.keys() == {ONLY} and len(signature.inputs) == 1:
        rows = {signature.inputs[0].name: rows[ONLY]}
    elif len(signature.inputs) == 1 and signature.inputs[0].name not in rows and all(array.ndim == 1 for array in rows.values()):
        # Columns of a table, none of them named like the input: together they form its row.
        rows = {signature.inputs[0].name: _table_of(rows)}
    missing = [spec.name for spec in signature.inputs if spec.name not in rows]
    if missing:
        message = f"the data has no {', '.join(missing)}; it has {', '.join(sorted(rows)) or 'nothing'}"
        raise UsageError(message, fix="name the arrays after the model's inputs")
    return [_shaped(spec, rows[spec.name]) for spec in signature.inputs]


def _table_of(rows: dict[str, Array]) -> Array:
    texts = [name for name, array in rows.items() if array.dtype.kind not in "biuf"]
    if texts:
        message = (
            f"the columns {', '.join(texts)} do not hold numbers, but all columns together form one row of the model's input"
        )
        raise UsageError(message, fix="leave them out, or name a column after the input")
    return np.stack(list(rows.values()), axis=1)


def _bytes_of(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _shaped(spec: TensorSpec, array: Array) -> Array:
    if spec.datatype == "BYTES":
        return of_texts([_bytes_of(value) for value in array.ravel().tolist()]).reshape(array.shape)
    values = typed(spec, array)
    free = sum(length < 0 for length in spec.shape[1:])
    if values.ndim != len(spec.shape) and free <= 1:
        with contextlib.suppress(ValueError):
            values = values.reshape(len(array), *spec.shape[1:])
    if values.ndim == len(spec.shape) and all(
        expected in (-1, actual) for expected, actual in zip(spec.shape[1:], values.shape[1:], strict=True)
    ):
        return values
    message = f"rows of shape {list(array.shape[1:])} do not fit the input {spec.name!r} of shape {list(spec.shape)}"
    raise UsageError(message, fix="give rows of the model's shape")


if __name__ == "__main__":
    sys.exit(main())
