"""Models as displayed to users."""

from __future__ import annotations

from dataclasses import replace

from fairway.state.model import ModelFile, ModelLineage, ModelSignature, ModelVersion, TensorSpec
from fairway.views.model import (
    AliasPromotionView,
    model_diff,
    model_diff_text,
    model_text,
    model_view,
    models_text,
    promotion_text,
)
from fairway.views.text.table import TextPage

LINEAGE = ModelLineage("default/mnist-7", "c" * 64, {"train": "mnist@3"}, {"python": "/venv"}, {"lr": "0.1"})
FIRST = ModelVersion(
    "mnist", 1, "d" * 64, "onnx", 1, 1 << 20, 1000.0,
    ModelSignature((TensorSpec("x", "FP32", (-1, 4)),), (TensorSpec("y", "", ()),)),
    {"accuracy": 0.9}, LINEAGE, {"team": "nlp"}, ("champion",),
)  # fmt: skip
SECOND = replace(
    FIRST,
    version=2,
    digest="e" * 64,
    format="savedmodel",
    signature=ModelSignature((TensorSpec("x", "FP32", (-1, 8)),), ()),
    metrics={"accuracy": 0.95, "loss": 0.1},
    lineage=replace(LINEAGE, run="team/mnist-8", code="f" * 64, data={}, parameters={"lr": "0.2"}, source="s3://b"),
    tags={},
    aliases=(),
)
FILES = (ModelFile("model.onnx", 10, "a" * 64),)


def test_the_list_has_the_newest_first_and_shows_what_matters() -> None:
    text = models_text([model_view(FIRST), model_view(SECOND)], 1060.0, TextPage(wide=True))
    title, second, first = text.splitlines()
    assert title.split() == ["NAME", "ALIASES", "FORMAT", "METRICS", "FROM", "SIZE", "AGE", "DIGEST", "TAGS"]
    assert second.startswith("mnist@2")
    assert "team/mnist-8" in second
    assert all(word in first for word in ("mnist@1", "champion", "accuracy 0.9", "mnist-7", "1 MiB", "1m", "team=nlp"))


def test_the_name_that_mlflow_clients_use_is_shown_where_it_differs() -> None:
    named = model_view(replace(FIRST, name="resnet50--17602d153a", title="ResNet50"))
    title, first, other = models_text([named, model_view(FIRST)], 1060.0).splitlines()
    assert title.split()[:3] == ["NAME", "MLFLOW", "NAME"]
    assert "ResNet50" in other
    assert "ResNet50" not in first
    assert "MLflow clients call it ResNet50" in model_text(named, 1060.0)
    assert "MLflow" not in model_text(model_view(FIRST), 1060.0)


def test_one_version_tells_where_it_came_from() -> None:
    text = model_text(model_view(FIRST, "service/digits", FILES), 1060.0)
    expected = ("mnist@1  champion", "served by service/digits", "in  x  FP32[any, 4]", "out y  ?[]", "run: default/mnist-7")
    more = ("code: cccccccccccc", "data: train=mnist@3", "environment: python=/venv", "parameters: lr=0.1", "team: nlp")
    for words in (*expected, *more, "model.onnx  10 B  aaaaaaaaaaaa"):
        assert words in text
    many = tuple(ModelFile(f"{number:02}", 1, "a" * 64) for number in range(20))
    assert "and 8 more (-o wide)" in model_text(model_view(FIRST, files=many), 1060.0)
    assert "19  1 B" in model_text(model_view(FIRST, files=many), 1060.0, TextPage(wide=True))


def test_a_difference_names_every_thing_that_differs() -> None:
    diff = model_diff(FIRST, SECOND, FILES, (ModelFile("saved_model.pb", 20, "b" * 64),))
    found = {(difference.what, difference.name): (difference.before, difference.after) for difference in diff.differences}
    assert found["file", "model.onnx"] == ("10 B aaaaaaaaaaaa", "")
    assert found["file", "saved_model.pb"] == ("", "20 B bbbbbbbbbbbb")
    assert found["input", "x"] == ("FP32[any, 4]", "FP32[any, 8]")
    assert found["output", "y"] == ("[]", "")
    assert found["metric", "loss"] == ("", "0.1")
    assert found["parameter", "lr"] == ("0.1", "0.2")
    assert found["data", "train"] == ("mnist@3", "")
    assert {what for what, _ in found} >= {"format", "run", "code", "source", "tag"}
    assert not diff.same_content
    assert "saved_model.pb" in model_diff_text(diff)


def test_a_promotion_says_from_where() -> None:
    assert promotion_text(AliasPromotionView("champion", "mnist@3", "")) == "mnist@3 is champion\n"
    assert promotion_text(AliasPromotionView("champion", "mnist@3", "mnist@2")) == "mnist@3 is champion, before it was mnist@2\n"
    assert promotion_text(AliasPromotionView("champion", "mnist@3", "mnist@3")) == "mnist@3 is champion already\n"
    assert promotion_text(AliasPromotionView("champion", "", "mnist@3")) == "mnist@3 is no longer champion\n"


def test_the_best_value_of_the_run_is_shown_beside_the_last() -> None:
    view = model_view(replace(FIRST, metrics={"loss": 0.5, "lr": 0.1}, best={"loss": 0.3}))
    assert view.best == {"loss": 0.3}
    text = model_text(view, 1060.0)
    assert "  loss 0.5, best 0.3\n  lr 0.1\n" in text
    diff = model_diff(replace(FIRST, best={"loss": 0.3}), replace(FIRST, best={"loss": 0.2}), FILES, FILES)
    assert [(difference.what, difference.name, difference.before, difference.after) for difference in diff.differences] == [
        ("best", "loss", "0.3", "0.2")
    ]


def test_one_version_tells_whether_requests_to_it_are_batched() -> None:
    text = model_text(model_view(FIRST, "service digits (revision 1)", FILES, "not batched (mixed): output 'y'"), 1060.0)
    assert "\n  not batched (mixed): output 'y'\n" in text
    assert "batched" not in model_text(model_view(FIRST), 1060.0)
