"""Conformance suite of `ModelStore`. Subclass it with the fixtures `models`, an empty store, and `source`, a model's folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from fairway.app.port.model_store import ModelStore
from fairway.errors import ConflictError, FairwayError, NotFoundError, RefusedError, UsageError
from fairway.state.model import ModelFacts, ModelLineage, ModelSignature, TensorSpec
from fairway.testing.builder.model_file import onnx_file, pickled_file
from fairway.units.names import model_name

FACTS = ModelFacts(
    metrics={"accuracy": 0.98, "loss": -1e300},
    lineage=ModelLineage(
        run="default/mnist-7",
        code="c" * 64,
        data={"train": "mnist@3"},
        environment={"python": "/usr/bin/python"},
        parameters={"lr": "0.1", "é": "你"},
    ),
    tags={"team": "nlp"},
    title="Mnist 50",
    best={"accuracy": 0.99},
)
BAD_NAMES = ["", ".", "..", "../x", "a/b", "A", "a\0b", "-a", "a@b", "x" * 60, "\udcff"]


def make_source(folder: Path) -> Path:
    """Create a folder with a model; return it."""
    (folder / "assets").mkdir(parents=True)
    (folder / "model.onnx").write_bytes(onnx_file())
    (folder / "assets" / "labels.txt").write_text("zero\none\n")
    return folder


@contextmanager
def refused(*kinds: type[FairwayError], words: str = "") -> Iterator[None]:
    """Fail unless the block raises an error of one of these kinds whose message contains `words`."""
    error_text = None
    try:
        yield
    except kinds as problem:
        error_text = str(problem)
    assert error_text is not None, f"nothing was raised; one of {kinds} should have been"
    assert words in error_text


class ModelStoreConformance:
    """The suite."""

    def test_the_name_of_another_registry_is_refused_with_the_name_here(self, models: ModelStore, source: Path) -> None:
        own = model_name("ResNet50")
        models.register(own, str(source), ModelFacts(title="ResNet50"), 1.0)
        with refused(UsageError, words=own):
            models.get("ResNet50@1")
        with refused(UsageError, words="is not a valid name"):
            models.get("ResNet18")

    def test_a_version_comes_back_as_it_was_registered(self, models: ModelStore, source: Path) -> None:
        version = models.register("mnist", str(source), FACTS, 5.0)
        assert (version.name, version.version, version.format, version.files, version.created) == ("mnist", 1, "onnx", 2, 5.0)
        assert version.size == sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
        assert version.signature == ModelSignature((TensorSpec("x", "FP32", (-1, 4)),), (TensorSpec("y", "FP32", (-1, 2)),))
        assert (version.metrics, version.lineage, version.tags) == (FACTS.metrics, FACTS.lineage, FACTS.tags)
        assert (version.title, version.best) == (FACTS.title, FACTS.best)
        assert models.get("mnist@1") == models.get("mnist") == models.get("mnist@latest") == version
        assert [file.path for file in models.files(version)] == ["assets/labels.txt", "model.onnx"]

    def test_numbers_rise_and_are_never_used_again(self, models: ModelStore, source: Path) -> None:
        for number in range(3):
            assert models.register("mnist", str(source), ModelFacts(metrics={"n": number}), 1.0).version == number + 1
        models.delete(models.get("mnist@3"))
        models.delete(models.get("mnist@1"))
        assert [str(version) for version in models.list("mnist")] == ["mnist@2"]
        assert models.register("mnist", str(source), FACTS, 1.0).version == 4
        with refused(NotFoundError, words="no version or alias '3'"):
            models.get("mnist@3")

    def test_the_newest_again_is_the_same_version(self, models: ModelStore, source: Path) -> None:
        registered = models.register("mnist", str(source), FACTS, 1.0)
        models.promote(registered, "champion")
        assert models.register("mnist", str(source), FACTS, 2.0) == models.get("mnist@1")
        assert models.register("mnist", str(source), ModelFacts(), 2.0).version == 2
        assert models.register("mnist", str(source), FACTS, 2.0).version == 3
        assert models.register("other", str(source), FACTS, 2.0).version == 1
        assert [str(version) for version in models.list()] == ["mnist@1", "mnist@2", "mnist@3", "other@1"]

    def test_an_alias_means_one_version_and_moves(self, models: ModelStore, source: Path) -> None:
        first, second = (models.register("mnist", str(source), ModelFacts(metrics={"n": n}), 1.0) for n in range(2))
        assert models.promote(first, "champion") is None
        assert models.promote(first, "champion") == 1
        assert models.promote(second, "champion") == 1
        assert models.get("mnist@champion").version == 2
        assert models.get("mnist@2").aliases == ("champion",)
        assert models.get("mnist@1").aliases == ()
        assert models.demote("mnist", "champion") == 2
        with refused(NotFoundError, words="champion"):
            models.get("mnist@champion")
        with refused(NotFoundError, words="champion"):
            models.demote("mnist", "champion")

    def test_an_alias_is_a_name_and_no_version(self, models: ModelStore, source: Path) -> None:
        version = models.register("mnist", str(source), FACTS, 1.0)
        for alias in ("latest", "3", "../x", "", "a b"):
            with refused(UsageError):
                models.promote(version, alias)

    def test_what_an_alias_means_stays(self, models: ModelStore, source: Path) -> None:
        version = models.register("mnist", str(source), FACTS, 1.0)
        models.promote(version, "champion")
        with refused(ConflictError, words="champion"):
            models.delete(version)
        models.demote("mnist", "champion")
        models.delete(version)
        with refused(NotFoundError):
            models.promote(version, "champion")
        with refused(NotFoundError):
            models.delete(version)

    def test_tags_may_change(self, models: ModelStore, source: Path) -> None:
        version = models.register("mnist", str(source), FACTS, 1.0)
        changed = models.tag(version, {"stage": "test", "team": None})
        assert changed.tags == models.get("mnist").tags == {"stage": "test"}
        assert models.tag(version, {"stage": None}).tags == models.get("mnist@1").tags == {}

    def test_the_content_comes_back(self, models: ModelStore, source: Path, tmp_path: Path) -> None:
        version = models.register("mnist", str(source), FACTS, 1.0)
        (source / "model.onnx").write_bytes(b"changed")
        for folder in (models.folder(version), tmp_path / "pulled"):
            if not folder.exists():
                models.pull(version, str(folder))
            assert (folder / "model.onnx").read_bytes() == onnx_file()
            assert (folder / "assets" / "labels.txt").read_text() == "zero\none\n"
        assert models.folder(version) == models.folder(version)
        (tmp_path / "pulled" / "model.onnx").write_bytes(b"mine now")
        with refused(RefusedError, words="exists already"):
            models.pull(version, str(tmp_path / "pulled"))
        (tmp_path / "empty").mkdir()
        models.pull(version, str(tmp_path / "empty"))
        assert (tmp_path / "empty" / "model.onnx").read_bytes() == onnx_file()

    def test_space_is_given_back_and_what_others_need_stays(self, models: ModelStore, source: Path, tmp_path: Path) -> None:
        (source / "large").write_bytes(b"1" * 3_000_000)
        first = models.register("mnist", str(source), FACTS, 1.0)
        (source / "large").write_bytes(b"2" * 3_000_000)
        second = models.register("mnist", str(source), FACTS, 1.0)
        assert not models.freeable()
        models.delete(first)
        assert models.freeable()
        assert models.free([first.digest]) == 0
        assert not models.freeable()
        models.delete(second)
        assert models.register("mnist", str(source), FACTS, 1.0).version == 3
        assert models.free([]) == 0
        models.pull(models.get("mnist"), str(tmp_path / "pulled"))
        (source / "large").write_bytes(b"3" * 3_000_000)
        third = models.get("mnist@3")
        models.register("mnist", str(source), FACTS, 1.0)
        models.delete(third)
        assert 3_000_000 < (models.free([]) or 0) < 3_010_000
        models.pull(models.get("mnist"), str(tmp_path / "kept"))
        assert (tmp_path / "kept" / "large").read_bytes() == b"3" * 3_000_000

    def test_one_file_is_a_model_too(self, models: ModelStore, source: Path) -> None:
        version = models.register("one", str(source / "model.onnx"), FACTS, 1.0)
        assert (version.files, version.format) == (1, "onnx")
        assert (models.folder(version) / "model.onnx").read_bytes() == onnx_file()

    def test_names_that_are_none_reach_no_file(self, models: ModelStore, source: Path) -> None:
        for name in BAD_NAMES:
            with refused(UsageError):
                models.register(name, str(source), FACTS, 1.0)
            with refused(UsageError):
                models.of_run(name, "default/x-1")
            with refused(UsageError, NotFoundError):
                models.get(f"{name}@1")
        assert models.list() == []

    def test_what_is_not_there_is_told_with_what_is(self, models: ModelStore, source: Path) -> None:
        with refused(NotFoundError, words="there is no model mnist"):
            models.get("mnist@1")
        models.register("mnist", str(source), FACTS, 1.0)
        for reference in ("9", "", "../1", "1.json", "champion"):
            with refused(NotFoundError, words="it has 1"):
                models.get(f"mnist@{reference}")

    def test_a_refusal_keeps_nothing(self, models: ModelStore, tmp_path: Path) -> None:
        bad = {name: tmp_path / name for name in ("gone", "nothing", "pickle", "link", "unknown")}
        for name in ("nothing", "pickle", "link", "unknown"):
            bad[name].mkdir()
        (bad["pickle"] / "m.pt").write_bytes(pickled_file())
        os.symlink("/etc/passwd", bad["link"] / "model.onnx")
        (bad["unknown"] / "notes.txt").write_text("x")
        for folder in bad.values():
            with refused(RefusedError, NotFoundError):
                models.examine(str(folder), FACTS)
            with refused(RefusedError, NotFoundError):
                models.register("mnist", str(folder), FACTS, 1.0)
        assert models.list() == []

    def test_a_pickle_is_kept_when_that_was_asked_for(self, models: ModelStore, tmp_path: Path) -> None:
        (tmp_path / "m.pt").write_bytes(pickled_file())
        with refused(RefusedError, words="m.pt is a pickle"):
            models.register("mnist", str(tmp_path / "m.pt"), ModelFacts(), 1.0)
        with refused(RefusedError, words="--allow-pickle"):
            models.examine(str(tmp_path / "m.pt"), ModelFacts())
        assert models.register("mnist", str(tmp_path / "m.pt"), ModelFacts(allow_pickle=True), 1.0).format == "pickle"

    def test_several_at_once_get_numbers_of_their_own(self, models: ModelStore, source: Path) -> None:
        facts = [ModelFacts(metrics={"n": number}) for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            versions = list(pool.map(lambda version_facts: models.register("mnist", str(source), version_facts, 1.0), facts))
        assert sorted(version.version for version in versions) == list(range(1, 9))
        assert {version.metrics["n"] for version in models.list("mnist")} == set(range(8))

    def test_the_same_by_several_at_once_is_one_version(self, models: ModelStore, source: Path) -> None:
        with ThreadPoolExecutor(8) as pool:
            numbers = set(pool.map(lambda _: models.register("mnist", str(source), FACTS, 1.0).version, range(8)))
        assert numbers == {1}
        assert len(models.list()) == 1

    def test_the_version_of_a_run_is_found(self, models: ModelStore, source: Path) -> None:
        assert models.of_run("mnist", "default/mnist-7") is None
        version = models.register("mnist", str(source), FACTS, 1.0)
        assert models.of_run("mnist", "default/mnist-7") == version
        assert models.of_run("mnist", "default/mnist-8") is None

    def test_what_is_expected_stays_until_it_is_settled(self, models: ModelStore) -> None:
        assert list(models.expected()) == []
        for run in ("default/a-1", "team/b-2", "default/a-1"):
            models.expect(run)
        assert list(models.expected()) == ["default/a-1", "team/b-2"]
        models.settle("default/a-1")
        models.settle("default/gone-1")
        assert list(models.expected()) == ["team/b-2"]
