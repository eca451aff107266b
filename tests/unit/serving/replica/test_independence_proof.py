"""Rows computed alone and together: which models may be batched, and why not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from row_models import FIXED, INDEPENDENT, MIXING, UNKNOWN, Make
from small_models import Told, signature

from fairway.serving.replica import independence_proof
from fairway.serving.replica.batching.probe_input import KINDS, ProbeInputs, SplitMixGenerator
from fairway.serving.replica.independence_proof import prove
from fairway.serving.replica.request_error import ModelError
from fairway.serving.replica.runtimes.onnx_runtime import OnnxRuntime
from fairway.state.serving.batching_verdict import BatchingBasis, BatchingVerdict

ROWS = signature(x=("FP32", [-1, 3]), out_y=("FP32", [-1, 3]))


def of(make: Make, folder: Path, most: int = 64, seed: int = 0) -> BatchingVerdict:
    return prove(OnnxRuntime(make(folder)), most, seed)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", INDEPENDENT)
def test_independent_rows_are_proven(name: str, seed: int, tmp_path: Path) -> None:
    verdict = of(INDEPENDENT[name], tmp_path, seed=seed)
    assert (verdict.batched, verdict.basis, verdict.rows) == (True, BatchingBasis.PROVEN, 64), verdict


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", MIXING)
def test_mixed_rows_are_found(name: str, seed: int, tmp_path: Path) -> None:
    verdict = of(MIXING[name], tmp_path, seed=seed)
    assert (verdict.batched, verdict.basis) == (False, BatchingBasis.MIXED), verdict
    assert "output 'y'" in verdict.detail


@pytest.mark.parametrize("name", FIXED)
def test_without_a_batch_dimension_there_is_nothing_to_prove(name: str, tmp_path: Path) -> None:
    verdict = of(FIXED[name], tmp_path)
    assert (verdict.batched, verdict.basis) == (False, BatchingBasis.FIXED)
    assert "and its first dimension is not free" in verdict.detail


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_cannot_be_shown_is_unknown(name: str, tmp_path: Path) -> None:
    make, reason = UNKNOWN[name]
    verdict = of(make, tmp_path)
    assert (verdict.batched, verdict.basis) == (False, BatchingBasis.UNKNOWN), verdict
    assert reason in verdict.detail


class Clock:
    """A clock that advances only when the model runs."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def timed(seconds_a_row: float, work: Any = lambda inputs: [2 * inputs[0]]) -> tuple[Told, Clock]:
    clock = Clock()

    def run(inputs: list[Any]) -> list[Any]:
        clock.now += seconds_a_row * len(inputs[0])
        answer: list[Any] = work(inputs)
        return answer

    return Told(ROWS, run), clock


def test_a_quick_model_is_tried_with_the_largest_batch() -> None:
    runtime, clock = timed(1e-5)
    verdict = prove(runtime, 64, clock=clock)
    assert (verdict.basis, verdict.rows) == (BatchingBasis.PROVEN, 64)
    assert {1, 2, 3, 5, 8, 64} <= set(runtime.sizes)
    assert clock.now < 0.01


def test_the_largest_batch_follows_the_time_that_a_row_takes() -> None:
    runtime, clock = timed(0.01)
    verdict = prove(runtime, 64, clock=clock)
    assert (verdict.basis, verdict.rows) == (BatchingBasis.PROVEN, 32)
    assert clock.now <= independence_proof.SECONDS


def test_a_slow_model_is_tried_with_fewer_rows() -> None:
    runtime, clock = timed(0.1)
    verdict = prove(runtime, 64, clock=clock)
    assert (verdict.batched, verdict.rows) == (True, 8)
    assert clock.now <= independence_proof.SECONDS


def test_a_slow_model_that_mixes_is_found_too() -> None:
    runtime, clock = timed(0.1, lambda inputs: [inputs[0] - inputs[0].mean(axis=0)])
    assert prove(runtime, 64, clock=clock).basis is BatchingBasis.MIXED


def test_a_model_that_takes_too_long_is_unknown() -> None:
    runtime, clock = timed(0.7)
    verdict = prove(runtime, 64, clock=clock)
    assert verdict == BatchingVerdict(
        False, BatchingBasis.UNKNOWN, "took too long: one row takes 0.7 s, and the proof may take 3 s"
    )
    assert len(runtime.sizes) == 3


def test_the_proof_ends_in_time_when_a_model_becomes_slow() -> None:
    clock = Clock()

    def run(inputs: list[Any]) -> list[Any]:
        clock.now += 2.0 if len(inputs[0]) > 1 else 0.0
        return [2 * inputs[0]]

    runtime = Told(ROWS, run)
    verdict = prove(runtime, 64, clock=clock)
    assert (verdict.batched, verdict.detail) == (False, "took too long: more than 3 s")
    assert clock.now <= independence_proof.SECONDS + 2.0


def test_a_batch_that_fails_where_its_rows_do_not_is_a_mix() -> None:
    def work(inputs: list[Any]) -> list[Any]:
        if len(inputs[0]) == 5:
            raise ModelError(500, "five is too many")
        return [inputs[0] + 1]

    verdict = prove(Told(ROWS, work), 64)
    assert verdict.basis is BatchingBasis.MIXED
    assert verdict.detail.startswith("the model fails with 5 rows together, and not with each of them alone: five is too many")


def test_outputs_of_another_length_are_a_mix() -> None:
    verdict = prove(Told(ROWS, lambda inputs: [inputs[0][: min(len(inputs[0]), 4)]]), 64)
    assert (verdict.basis, verdict.detail) == (BatchingBasis.MIXED, "output 'y' has shape [4, 3] for 5 rows")


def test_rows_whose_outputs_have_different_shapes_are_a_mix() -> None:
    ragged = signature(x=("FP32", [-1, 3]), out_y=("FP32", [-1, -1]))
    verdict = prove(Told(ragged, lambda inputs: [inputs[0][:, : 1 + int(inputs[0][0, 0] > 0)]]), 64)
    assert verdict.basis is BatchingBasis.MIXED
    assert "which no batch can have" in verdict.detail


def test_a_very_large_batch_is_compared_at_once() -> None:
    runtime, began = Told(ROWS, lambda inputs: [2 * inputs[0]]), time.process_time()
    assert prove(runtime, 65_536).rows == 65_536
    assert time.process_time() - began < 2.0


def test_the_second_output_counts_too() -> None:
    two = signature(x=("FP32", [-1, 3]), out_y=("FP32", [-1, 3]), out_z=("INT64", [-1]))

    def work(inputs: list[Any]) -> list[Any]:
        return [inputs[0], np.argsort(np.argsort(inputs[0][:, 0]))]

    verdict = prove(Told(two, work), 64)
    assert (verdict.basis, "output 'z'" in verdict.detail) == (BatchingBasis.MIXED, True)


def test_noise_within_the_tolerance_of_the_datatype_is_no_mix() -> None:
    def noisy(inputs: list[Any]) -> list[Any]:
        return [inputs[0] * np.float32(1.0 + 1e-5 * len(inputs[0]) / 64)]

    assert prove(Told(ROWS, noisy), 64).batched
    coarse = prove(Told(ROWS, lambda inputs: [inputs[0] * np.float32(1.0 + 1e-2 * len(inputs[0]))]), 64)
    assert coarse.basis is BatchingBasis.MIXED


def test_a_small_column_is_not_hidden_by_a_large_one() -> None:
    def work(inputs: list[Any]) -> list[Any]:
        y = inputs[0].copy()
        y[:, 0] += 100.0
        y[:, 1] += inputs[0][:, 1].mean()
        return [y]

    assert prove(Told(ROWS, work), 64).basis is BatchingBasis.MIXED


def test_a_runtime_that_breaks_leaves_the_model_unbatched() -> None:
    def work(inputs: list[Any]) -> list[Any]:
        raise KeyError("y")

    verdict = prove(Told(ROWS, work), 64)
    assert (verdict.batched, verdict.detail) == (False, "the runtime failed: KeyError('y')")


def test_rows_too_large_to_try_are_unknown() -> None:
    wide = signature(x=("FP32", [-1, 4096, 4096]), out_y=("FP32", [-1]))
    runtime = Told(wide, lambda inputs: [inputs[0][:, 0, 0]])
    verdict = prove(runtime, 64)
    assert (verdict.basis, verdict.detail) == (
        BatchingBasis.UNKNOWN,
        "a row takes 67108864 bytes, and 8 rows must fit into 67108864",
    )
    assert not runtime.sizes


@pytest.mark.parametrize("datatype", ["BOOL", "UINT8", "INT8", "INT64", "UINT64", "FP16", "FP32", "FP64", "BF16", "BYTES"])
@pytest.mark.parametrize("kind", KINDS)
def test_probes_are_rows_that_differ(kind: Any, datatype: str) -> None:
    probes = ProbeInputs(signature(x=(datatype, [-1, 4, 5])), SplitMixGenerator(3))
    rows = [probes.row(kind, 1.0)[0] for _ in range(4)]
    assert {row.shape for row in rows} == {(1, 4, 5)}
    assert len({str(row.tolist()) for row in rows}) == 4
    again = ProbeInputs(signature(x=(datatype, [-1, 4, 5])), SplitMixGenerator(3)).row(kind, 1.0)[0]
    assert again.tolist() == rows[0].tolist()


def test_uniform_numbers_fill_their_range() -> None:
    numbers = SplitMixGenerator(0).take(10_000)
    assert 0.0 <= numbers.min() < 0.01
    assert 0.99 < numbers.max() < 1.0
    assert abs(numbers.mean() - 0.5) < 0.01
    assert SplitMixGenerator(1).take(3).tolist() != numbers[:3].tolist()


def test_the_proof_of_a_small_model_takes_no_time(tmp_path: Path) -> None:
    runtime = OnnxRuntime(INDEPENDENT["mlp"](tmp_path))
    began = time.process_time()
    assert prove(runtime, 64).batched
    assert time.process_time() - began < 0.5
