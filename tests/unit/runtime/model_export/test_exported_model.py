"""Functions shared by the exporters."""

from __future__ import annotations

from fairway.runtime.model_export.exported_model import in_order


def test_tensors_are_ordered_by_letters_and_numbers() -> None:
    assert in_order({"output_10": 0, "output_2": 0, "output": 0, "a": 0}) == ["a", "output", "output_2", "output_10"]
    assert in_order([]) == []
