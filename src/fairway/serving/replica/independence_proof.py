"""Tests whether the rows of a model are independent: a row must give the same outputs alone and in batches.

The proof runs before the replica listens, and is bounded in time and memory. A model for which it is inconclusive gets the
verdict `unknown` and is not batched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fairway.serving.replica.batching.probe_input import KINDS, ProbeInputs, ProbeValueKind, SplitMixGenerator
from fairway.serving.replica.model.datatype import Array
from fairway.serving.replica.request_error import ModelError
from fairway.serving.replica.runtimes.runtime import ModelRuntime
from fairway.state.model import ModelSignature, TensorSpec
from fairway.state.serving.batching_verdict import BatchingBasis, BatchingVerdict

SECONDS = 3.0
"""Maximum duration of the whole proof."""
THOROUGH_SECONDS = 1.0
"""Rows are compared in all `_ORDERS` if that takes no longer than this, otherwise in `_FEW_ORDERS`."""
BATCH_SECONDS = 0.5
"""Maximum duration of a batch of the proof."""
BATCH_BYTES = 64 << 20
"""Maximum size of the inputs of a batch of the proof."""
POOL = 8
"""Number of different rows of one kind."""
ENOUGH_KINDS = 2
"""Minimum number of kinds of values to compare, if the model accepts them."""
_ORDERS = (
    (0, 1),
    (1, 0),
    (4, 2, 3),
    (7, 5, 6, 0, 3),
    (0, 1, 2, 3, 4, 5, 6, 7),
    (7, 6, 5, 4, 3, 2, 1, 0),
    (2, 5, 0, 7, 3, 6, 1, 4),
)
_FEW_ORDERS = ((1, 0), (3, 1, 2), (0, 2, 1, 3, 3, 1, 0, 2))
_TOLERANCES = {"FP16": 1e-2, "BF16": 4e-2, "FP32": 5e-4, "FP64": 5e-4}
"""Relative tolerance by datatype of an output; others must be equal. FP64 is treated as FP32, because many models compute in FP32
and convert at the end."""
_FLOOR = 1e-3
"""Minimum magnitude of an element for the tolerance, as a fraction of the largest element of its output."""


class MixedRowsError(Exception):
    """The outputs for a row depend on the other rows of its batch."""


class InconclusiveProofError(Exception):
    """The proof cannot be completed."""


class SlowProofError(InconclusiveProofError):
    """The proof would take too long."""


def prove(runtime: ModelRuntime, most: int, seed: int = 0, clock: Callable[[], float] = time.perf_counter) -> BatchingVerdict:
    """Return whether rows of several requests may run together. `most`: the largest batch that would be formed."""
    if not runtime.batches:
        return BatchingVerdict(False, BatchingBasis.FIXED, _no_batch_dimension(runtime.signature))
    proof = _Proof(runtime, most, SplitMixGenerator(seed), clock)
    try:
        proof.run()
    except MixedRowsError as error:
        return BatchingVerdict(False, BatchingBasis.MIXED, str(error))
    except InconclusiveProofError as error:
        return BatchingVerdict(False, BatchingBasis.UNKNOWN, str(error))
    except Exception as error:  # noqa: BLE001  # a bug of a runtime must not prevent the start
        return BatchingVerdict(False, BatchingBasis.UNKNOWN, f"the runtime failed: {error!r}")
    detail = f"rows alone and together gave the same outputs, in batches of up to {proof.found.rows} rows"
    return BatchingVerdict(True, BatchingBasis.PROVEN, detail, proof.found.rows)


@dataclass(slots=True)
class _ProofResult:
    """The results so far."""

    kinds: int = 0
    """Number of kinds of values that were compared."""
    varied: set[int] = field(default_factory=set)
    """Indices of the outputs that differed between rows."""
    rows: int = 0
    """Size of the largest batch."""
    refused: str = ""
    """The error for inputs that the model rejected."""


class _Proof:
    def __init__(self, runtime: ModelRuntime, most: int, uniform: SplitMixGenerator, clock: Callable[[], float]) -> None:
        self._runtime = runtime
        self._outputs = runtime.signature.outputs
        self._most = most
        self._uniform = uniform
        self._probes = ProbeInputs(runtime.signature, uniform)
        self._clock = clock
        self._began = clock()
        self.found = _ProofResult()

    def run(self) -> None:
        """Return when the rows are independent; raise `MixedRowsError` or `InconclusiveProofError` otherwise."""
        results = self.found
        self._choose_length()
        for kind in KINDS:
            try:
                compared = self._compare(kind)
            except SlowProofError:
                if not self._complete:
                    raise
                return
            if self._complete and (results.kinds >= ENOUGH_KINDS or not compared):
                return
        if not results.kinds:
            message = f"the model refused all inputs that were tried: {results.refused}"
            raise InconclusiveProofError(message)
        constant = [spec.name for index, spec in enumerate(self._outputs) if index not in results.varied]
        if constant:
            message = f"output {constant[0]!r} was the same for all rows that were tried, which proves nothing"
            raise InconclusiveProofError(message)

    @property
    def _complete(self) -> bool:
        """Whether every output differed between the compared rows."""
        return self.found.kinds > 0 and len(self.found.varied) == len(self._outputs)

    def _choose_length(self) -> None:
        """Choose a length of free dimensions with which the model accepts zeros; the first one if it accepts none."""
        probes = self._probes
        for length in probes.lengths:
            probes.length = length
            if probes.row_bytes * POOL > BATCH_BYTES:
                continue
            try:
                self._run(probes.zeros())
            except ModelError as error:
                self.found.refused = self.found.refused or str(error)
            else:
                return
        probes.length = probes.lengths[0]
        if probes.row_bytes * POOL > BATCH_BYTES:
            message = f"a row takes {probes.row_bytes} bytes, and {POOL} rows must fit into {BATCH_BYTES}"
            raise InconclusiveProofError(message)

    def _compare(self, kind: ProbeValueKind) -> bool:
        """Compare rows of one kind; return False if the model rejects them."""
        pool = [self._probes.row(kind, (1 + index) / POOL) for index in range(POOL)]
        try:
            first = self._run(pool[0])
            started = self._clock()
            again = self._run(pool[0])
            orders = self._orders(self._clock() - started)
            alone = [first, *(self._run(row) for row in pool[1 : 1 + max(map(max, orders))])]
        except ModelError as error:
            self.found.refused = str(error)
            return False
        rows = _ReferenceRows(self._outputs, alone)
        rows.check_repeat(again)
        per_row = 0.0
        for order in orders:
            started = self._clock()
            self._together(pool, order, rows)
            per_row = (self._clock() - started) / len(order)
        for order in self._large_orders(per_row, len(alone)):
            self._together(pool, order, rows)
        self.found.kinds += 1
        self.found.varied |= rows.varied()
        return True

    def _orders(self, seconds: float) -> Sequence[tuple[int, ...]]:
        """Return which rows to run together, depending on the duration of a single row."""
        remaining = SECONDS - (self._clock() - self._began)
        for orders, limit in ((_ORDERS, min(remaining, THOROUGH_SECONDS)), (_FEW_ORDERS, remaining)):
            if seconds * (POOL + sum(map(len, orders))) <= limit:
                return orders
        message = f"took too long: one row takes {seconds:.2g} s, and the proof may take {SECONDS:g} s"
        raise SlowProofError(message)

    def _large_orders(self, per_row: float, different: int) -> list[tuple[int, ...]]:
        """Return rows for the largest batch and a smaller one: mixing may begin only above some number of rows."""
        largest = self._most
        while largest > POOL and (largest * per_row > BATCH_SECONDS or largest * self._probes.row_bytes > BATCH_BYTES):
            largest //= 2
        sizes = [rows for rows in (5 * largest // 8 | 1, largest) if POOL < rows <= largest]
        return [tuple((self._uniform.take(rows) * different).astype(int).tolist()) for rows in sizes]

    def _together(self, pool: list[list[Array]], order: tuple[int, ...], rows: _ReferenceRows) -> None:
        inputs = [np.concatenate(columns) for columns in zip(*(pool[index] for index in order), strict=True)]
        try:
            outputs = self._run(inputs)
        except ModelError as error:
            message = f"the model fails with {len(order)} rows together, and not with each of them alone: {error}"
            raise MixedRowsError(message) from None
        rows.check(outputs, order)
        self.found.rows = max(self.found.rows, len(order))

    def _run(self, inputs: list[Array]) -> list[Array]:
        if self._clock() - self._began > SECONDS:
            message = f"took too long: more than {SECONDS:g} s"
            raise SlowProofError(message)
        return self._runtime.run(inputs)


class _ReferenceRows:
    """The outputs of rows that ran alone, as a reference."""

    def __init__(self, specs: tuple[TensorSpec, ...], alone: list[list[Array]]) -> None:
        self._specs = specs
        self._alone: list[Array] = []
        """For each output, the values of all rows."""
        for spec, outputs in zip(specs, zip(*alone, strict=True), strict=True):
            wrong = next((output for output in outputs if not output.ndim or len(output) != 1), None)
            if wrong is not None:
                message = f"output {spec.name!r} has shape {list(wrong.shape)} for one row, without a dimension for rows"
                raise MixedRowsError(message)
            other = next((output for output in outputs if output.shape != outputs[0].shape), None)
            if other is not None:
                shapes = f"{list(outputs[0].shape)} for one row and {list(other.shape)} for another"
                message = f"output {spec.name!r} has shape {shapes}, which no batch can have"
                raise MixedRowsError(message)
            self._alone.append(np.concatenate(outputs))
        self._scales = [_scale(outputs) for outputs in self._alone]

    def check_repeat(self, again: list[Array]) -> None:
        """Raise `InconclusiveProofError` unless the first row gives the same outputs a second time."""
        for index, spec in enumerate(self._specs):
            if again[index].shape != self._alone[index][:1].shape or self._differ(index, (0,), again[index]).any():
                message = f"output {spec.name!r} differs when the same row is run twice"
                raise InconclusiveProofError(message)

    def check(self, outputs: list[Array], order: tuple[int, ...]) -> None:
        """Raise `MixedRowsError` unless each row of a batch gives the same outputs as alone."""
        for index, (spec, output) in enumerate(zip(self._specs, outputs, strict=True)):
            if output.shape != (len(order), *self._alone[index].shape[1:]):
                message = f"output {spec.name!r} has shape {list(output.shape)} for {len(order)} rows"
                raise MixedRowsError(message)
            different = self._differ(index, order, output)
            if different.any():
                position = int(different.argmax()) + 1
                message = f"output {spec.name!r} of a row differs between the row alone and as row {position} of {len(order)}"
                raise MixedRowsError(message)

    def varied(self) -> set[int]:
        """Return the indices of outputs that differ between rows. Outputs with only NaN do not count."""
        first = (0,) * len(self._alone[0]) if self._alone else ()
        return {
            index
            for index, outputs in enumerate(self._alone)
            if self._differ(index, first, outputs).any() and not _is_nan(outputs)
        }

    def _differ(self, place: int, order: tuple[int, ...], outputs: Array) -> Array:
        """Return for each row whether its output differs from that of the row alone."""
        expected, scale = self._alone[place][list(order)], self._scales[place]
        if scale is None:
            same = expected == outputs
        else:
            tolerance = _TOLERANCES.get(self._specs[place].datatype, 0.0)
            with np.errstate(invalid="ignore", over="ignore"):
                near = np.abs(expected.astype(np.float64) - outputs) <= tolerance * scale
            same = near | (expected == outputs) | (np.isnan(expected) & np.isnan(outputs))
        differ: Array = np.logical_not(np.all(np.reshape(np.asarray(same, bool), (len(order), -1)), axis=1))
        return differ


def _scale(outputs: Array) -> Array | None:
    """Return the largest finite magnitude of each element over all rows; None if outputs must be equal."""
    if outputs.dtype.kind != "f":
        return None
    largest = np.where(np.isfinite(outputs), np.abs(outputs.astype(np.float64)), 0.0).max(axis=0, initial=0.0)
    scale: Array = np.maximum(largest, _FLOOR * largest.max(initial=0.0))
    return scale


def _is_nan(output: Array) -> bool:
    return output.dtype.kind == "f" and bool(np.isnan(output).all())


def _no_batch_dimension(signature: ModelSignature) -> str:
    for kind, specs in (("input", signature.inputs), ("output", signature.outputs)):
        for spec in specs:
            if not spec.shape or spec.shape[0] != -1:
                return f"{kind} {spec.name!r} has shape {list(spec.shape)}, and its first dimension is not free"
    return "the signature has no inputs"
