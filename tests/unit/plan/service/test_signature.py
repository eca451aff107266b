"""Which changes of a signature break clients."""

import pytest

from fairway.errors import RefusedError
from fairway.plan.service import signature
from fairway.state.model import ModelSignature, TensorSpec

IMAGE = TensorSpec("image", "FP32", (-1, 1, 28, 28))
LOGITS = TensorSpec("logits", "FP32", (-1, 10))
OLD = ModelSignature((IMAGE,), (LOGITS,))


def changed(inputs=(IMAGE,), outputs=(LOGITS,), old=OLD):
    return [(change.text, change.breaks) for change in signature.changes(old, ModelSignature(tuple(inputs), tuple(outputs)))]


def test_the_same_is_no_change_whatever_the_order():
    other = TensorSpec("mask", "BOOL", (-1,))
    assert changed() == []
    assert changed((other, IMAGE), old=ModelSignature((IMAGE, other), (LOGITS,))) == []


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (TensorSpec("image", "FP16", (-1, 1, 28, 28)), "input image: FP32[any, 1, 28, 28] -> FP16[any, 1, 28, 28]"),
        (TensorSpec("image", "FP32", (-1, 3, 28, 28)), "input image: FP32[any, 1, 28, 28] -> FP32[any, 3, 28, 28]"),
        (TensorSpec("image", "FP32", (1, 1, 28, 28)), "input image: FP32[any, 1, 28, 28] -> FP32[1, 1, 28, 28]"),
        (TensorSpec("image", "FP32", (-1, 784)), "input image: FP32[any, 1, 28, 28] -> FP32[any, 784]"),
    ],
)
def test_another_type_rank_or_length_of_an_input_breaks_clients(new, said):
    assert changed([new]) == [(said, True)]


def test_a_renamed_input_is_one_gone_and_one_new():
    renamed = TensorSpec("pixels", "FP32", (-1, 1, 28, 28))
    assert changed([renamed]) == [
        ("input image: FP32[any, 1, 28, 28] -> gone", True),
        ("input pixels: none -> FP32[any, 1, 28, 28]", True),
    ]


def test_a_fixed_length_that_becomes_any_breaks_nothing():
    assert changed([TensorSpec("image", "FP32", (-1, 1, -1, -1))], [TensorSpec("logits", "FP32", (-1, -1))]) == [
        ("input image: FP32[any, 1, 28, 28] -> FP32[any, 1, any, any]", False),
        ("output logits: FP32[any, 10] -> FP32[any, any]", False),
    ]


def test_outputs_may_come_but_not_go_or_change():
    assert changed(outputs=[LOGITS, TensorSpec("score", "FP32", (-1,))]) == [("output score: none -> FP32[any]", False)]
    assert changed(outputs=[TensorSpec("logits", "FP32", (-1, 9))]) == [("output logits: FP32[any, 10] -> FP32[any, 9]", True)]
    assert changed(outputs=[TensorSpec("logits", "FP32", (4, 10))]) == [("output logits: FP32[any, 10] -> FP32[4, 10]", False)]
    assert changed(outputs=[TensorSpec("scores", "FP32", (-1, 10))])[0] == ("output logits: FP32[any, 10] -> gone", True)


def test_what_is_not_known_is_no_change():
    assert changed((), ()) == []
    assert changed(old=ModelSignature()) == []
    assert changed([TensorSpec("image", "", ())], [TensorSpec("logits", "FP32", ())]) == []


def test_a_change_that_breaks_clients_is_refused_with_the_way_to_consent():
    new = ModelSignature((TensorSpec("pixels", "FP32", (-1, 784)),), (LOGITS,))
    with pytest.raises(
        RefusedError, match=r"mnist@8 would break clients of mnist@7: input image: .* -> gone; input pixels"
    ) as caught:
        signature.check("mnist@7", "mnist@8", signature.changes(OLD, new))
    assert "--allow-signature-change" in caught.value.fix
    assert "rollout.allow_signature_change: true" in caught.value.fix
    signature.check("mnist@7", "mnist@8", signature.changes(OLD, OLD))
