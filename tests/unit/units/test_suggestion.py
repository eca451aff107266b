"""Suggesting the most similar name."""

import pytest

from fairway.units import suggestion

FIELDS = ["replicas", "resources", "restart", "command", "gpu_type", "memory", "cpu", "gpu"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("replica", "replicas"),
        ("comand", "command"),
        ("gpuType", "gpu_type"),
        ("GPU-TYPE", "gpu_type"),
        ("gpus", "gpu"),
        ("mem", "memory"),
        ("repl", "replicas"),
        ("re", ""),
        ("tpu", ""),
        ("", ""),
        ("x" * 10_000, ""),
        ("rdma/hca", ""),
    ],
)
def test_nearest_name(name, meant):
    assert suggestion.nearest(name, FIELDS) == meant


def test_words():
    assert suggestion.did_you_mean("comand", FIELDS) == "did you mean `command`?"
    assert suggestion.did_you_mean("zebra", FIELDS) == ""
    assert suggestion.did_you_mean("a", []) == ""
