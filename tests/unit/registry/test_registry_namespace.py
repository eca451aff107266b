"""Names of models and datasets in namespaces, and a registry of a version without namespaces."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import NotFoundError, UsageError
from fairway.registry.blob import BlobStore
from fairway.registry.dataset import DatasetRegistry
from fairway.registry.model import ModelRegistry
from fairway.registry.registry_namespace import MODELS, RegistryNamespaces
from fairway.state.model import ModelFacts
from fairway.testing.builder.model_file import onnx_file


@pytest.fixture
def several(tmp_path: Path) -> RegistryNamespaces:
    return RegistryNamespaces(tmp_path / "home", several=True)


def register(models: ModelRegistry, folder: Path, name: str, weights: str, now: float = 1.0) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(onnx_file(weights=(weights,)))
    return str(models.register(name, str(folder), ModelFacts(), now))


def test_what_names_mean(several: RegistryNamespaces) -> None:
    assert several.own("mnist@3", "default") == several.meant(MODELS, "mnist@3", "default") == "mnist@3"
    assert several.own("mnist@3", "team-a") == several.meant(MODELS, "mnist@3", "team-a") == "team-a/mnist@3"
    assert several.meant(MODELS, "team-b/mnist@3", "team-a") == "team-b/mnist@3"
    assert several.meant(MODELS, "default/mnist@3", "team-a") == "mnist@3"
    assert several.relative(MODELS, "mnist@3", "default") == several.relative(MODELS, "team-a/mnist@3", "team-a") == "mnist@3"
    assert several.relative(MODELS, "mnist@3", "team-a") == "default/mnist@3"
    assert several.relative(MODELS, "team-b/mnist@3", "team-a") == "team-b/mnist@3"
    with pytest.raises(UsageError, match="'team-a/mnist' names a namespace"):
        several.own("team-a/mnist", "team-b")


def test_one_machine_has_one_namespace_whatever_its_runs_are_in(tmp_path: Path) -> None:
    single = RegistryNamespaces(tmp_path)
    for namespace in ("default", "team-a"):
        assert single.own("mnist@3", namespace) == single.meant(MODELS, "mnist@3", namespace) == "mnist@3"
        assert single.relative(MODELS, "mnist@3", namespace) == "mnist@3"
    with pytest.raises(UsageError, match="the registry of this machine has no namespaces"):
        single.meant(MODELS, "team-b/mnist", "default")
    with pytest.raises(UsageError, match="is not a valid name"):
        ModelRegistry(tmp_path, BlobStore(tmp_path / "blobs"), single).get("team-b/mnist")


@pytest.mark.parametrize(
    "name", ["../x", "team-a/../x", "team-a/x/y", "/x", "x/", "Team/x", "default/x", "a" * 64 + "/x", "t_/x", ".../x", "team-a/"]
)
def test_no_other_text_becomes_a_path(tmp_path: Path, several: RegistryNamespaces, name: str) -> None:
    blobs = BlobStore(tmp_path / "home" / "blobs")
    for store in (ModelRegistry(tmp_path / "home", blobs, several), DatasetRegistry(tmp_path / "home", blobs, several)):
        with pytest.raises(UsageError):
            store.get(f"{name}@1")


@given(name=st.text(alphabet="ab./@-", max_size=12), namespace=st.sampled_from(["default", "team-a"]))
def test_a_name_that_passes_stays_in_its_namespace(name: str, namespace: str) -> None:
    root = Path("/root")
    several = RegistryNamespaces(root, several=True)
    try:
        checked = several.check("model", several.own(name, namespace))
    except UsageError:
        return
    parent = root / "models" if namespace == "default" else root / "namespaces" / namespace / "models"
    assert several.folder("models", checked).parent == parent


def test_namespaces_have_names_numbers_and_aliases_of_their_own(tmp_path: Path, several: RegistryNamespaces) -> None:
    blobs = BlobStore(tmp_path / "home" / "blobs")
    models = ModelRegistry(tmp_path / "home", blobs, several)
    assert register(models, tmp_path / "m", "mnist", "one") == "mnist@1"
    assert register(models, tmp_path / "m", "team-a/mnist", "one") == "team-a/mnist@1"
    assert register(models, tmp_path / "m", "team-a/mnist", "two") == "team-a/mnist@2"
    models.promote(models.get("team-a/mnist@2"), "champion")
    with pytest.raises(NotFoundError, match=r"has no version or alias 'champion'"):
        models.get("mnist@champion")
    with pytest.raises(NotFoundError, match=r"there is no model mnist in the namespace team-b \(known: none\)"):
        models.get("team-b/mnist")
    assert (models.names(), models.names("team-a")) == (["mnist", "team-a/mnist"], ["team-a/mnist"])
    assert models.folder(models.get("team-a/mnist@1")) != models.folder(models.get("mnist@1"))
    models.delete(models.get("mnist@1"))
    models.free([])
    assert (models.folder(models.get("team-a/mnist@1")) / "model.onnx").is_file(), "content that another namespace needs stays"


def test_the_space_of_one_namespace_is_not_freed_for_another(tmp_path: Path, several: RegistryNamespaces) -> None:
    home, blobs = tmp_path / "home", BlobStore(tmp_path / "home" / "blobs")
    models, datasets = ModelRegistry(home, blobs, several), DatasetRegistry(home, blobs, several)
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "model.onnx").write_bytes(onnx_file(weights=("one",)))
    rows = datasets.add("team-a/rows", tmp_path / "rows", 1.0)
    register(models, tmp_path / "m", "team-b/mnist", "one")
    models.delete(models.get("team-b/mnist@1"))
    models.free([])
    assert (datasets.resolve(str(rows)) / "model.onnx").is_file()


def test_what_was_named_before_there_were_namespaces_stays_what_it_was(tmp_path: Path, several: RegistryNamespaces) -> None:
    home, blobs = tmp_path / "home", BlobStore(tmp_path / "home" / "blobs")
    earlier = ModelRegistry(home, blobs)
    for weights in ("one", "two", "three"):
        register(earlier, tmp_path / "m", "mnist", weights)
    earlier.promote(earlier.get("mnist@2"), "champion")

    assert several.keep_earlier({"models": {"mnist": ["team-a"]}})
    models = ModelRegistry(home, blobs, RegistryNamespaces(home, several=True))
    assert [str(version) for version in models.list()] == ["mnist@1", "mnist@2", "mnist@3"]
    for reference, number in {"mnist@1": 1, "mnist@champion": 2, "mnist": 3, "mnist@latest": 3}.items():
        version = models.get(models.meant(reference, "team-a"))
        assert (version.name, version.version) == ("mnist", number)
        assert models.relative(str(version), "team-a") == f"mnist@{number}", "as objects and pods have it now"
        assert models.meant(reference, "team-b").startswith("team-b/"), "who did not use it has no part in it"
    # New versions continue the numbers, so that no number ever refers to two versions.
    assert register(models, tmp_path / "m", "team-a/mnist", "own", 2.0) == "team-a/mnist@4"
    assert models.meant("mnist@1", "team-a") == "mnist@1"
    assert models.meant("mnist@4", "team-a") == "team-a/mnist@4"
    assert models.meant("mnist", "team-a") == "team-a/mnist"
    assert models.meant("mnist@champion", "team-a") == "mnist@champion"
    models.promote(models.get("team-a/mnist@4"), "champion")
    assert models.meant("mnist@champion", "team-a") == "team-a/mnist@champion"
    assert not several.keep_earlier({"models": {"mnist": ["team-a", "team-b"]}}), "once"
    assert models.meant("mnist", "team-b") == "team-b/mnist"
    assert register(models, tmp_path / "m", "mnist", "four", 3.0) == "mnist@4"
    assert models.meant("mnist@4", "team-a") == "team-a/mnist@4"
