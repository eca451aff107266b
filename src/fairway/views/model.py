"""Views of model versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fairway.state.model import ModelFile, ModelLineage, ModelSignature, ModelVersion, TensorSpec
from fairway.units import quantity
from fairway.units.notebook_card import NotebookView
from fairway.views.text import phrase
from fairway.views.text.table import Column, TextPage, table

_INDENT = "  "
_FILES_SHOWN = 12


class ModelTensorView(msgspec.Struct, frozen=True):
    """An input or output of a model."""

    name: str
    datatype: str
    shape: tuple[int, ...] = ()
    """-1 means any length."""


class ModelSignatureView(msgspec.Struct, frozen=True):
    """The inputs and outputs of a model."""

    inputs: tuple[ModelTensorView, ...] = ()
    outputs: tuple[ModelTensorView, ...] = ()


class ModelLineageView(msgspec.Struct, frozen=True):
    """The origin of a version."""

    run: str = ""
    code: str = ""
    data: dict[str, str] = {}
    environment: dict[str, str] = {}
    parameters: dict[str, str] = {}
    source: str = ""


class ModelFileView(msgspec.Struct, frozen=True):
    """A file of a version."""

    path: str
    size: int
    sha256: str


class ModelView(NotebookView, frozen=True):
    """A version of a model."""

    name: str
    version: int
    aliases: tuple[str, ...]
    format: str
    files: int
    size: int
    created: float
    digest: str
    signature: ModelSignatureView
    metrics: dict[str, float]
    lineage: ModelLineageView
    tags: dict[str, str]
    used_by: str = ""
    """The services that serve it, in words."""
    batching: str = ""
    """Whether replicas batch requests to it and why, in words; empty if no replica has reported it yet."""
    contents: tuple[ModelFileView, ...] | msgspec.UnsetType = msgspec.UNSET
    """Its files; unset in lists."""
    title: str = ""
    """The model's name for MLflow clients, if it is not a valid registry name: `ResNet50`."""
    best: dict[str, float] = msgspec.field(default_factory=dict)
    """Best values from the run that made it, for metrics with a known direction; `metrics` holds the last values."""

    def __str__(self) -> str:
        """`mnist@3`."""
        return f"{self.name}@{self.version}"


class ModelList(msgspec.Struct, frozen=True):
    """Versions of models, by name and number."""

    models: tuple[ModelView, ...]


class ModelDifferenceView(msgspec.Struct, frozen=True):
    """A difference between two versions."""

    what: str
    """`file`, `signature`, `metric`, `best`, `format`, `code`, `data`, `environment`, `parameter` ..."""
    name: str
    before: str
    after: str
    """Empty if missing in the second version."""


class ModelDiffView(msgspec.Struct, frozen=True):
    """The differences between two versions."""

    before: str
    after: str
    same_content: bool
    differences: tuple[ModelDifferenceView, ...]


class AliasPromotionView(NotebookView, frozen=True):
    """An alias that was moved, or would be."""

    alias: str
    version: str
    """`mnist@3`; empty if the alias was removed."""
    before: str
    """The alias's previous version; empty if the alias is new."""


def model_view(
    version: ModelVersion, used_by: str = "", files: Sequence[ModelFile] | None = None, batching: str = ""
) -> ModelView:
    """Return the view of a version."""
    contents = msgspec.UNSET if files is None else tuple(ModelFileView(file.path, file.size, file.sha256) for file in files)
    return ModelView(
        name=version.name,
        version=version.version,
        aliases=version.aliases,
        format=version.format,
        files=version.files,
        size=version.size,
        created=version.created,
        digest=version.digest,
        signature=_signature(version.signature),
        metrics=version.metrics,
        lineage=_lineage(version.lineage),
        tags=version.tags,
        used_by=used_by,
        batching=batching,
        contents=contents,
        title=version.title,
        best=version.best,
    )


def models_text(models: Sequence[ModelView], now: float, page: TextPage = TextPage()) -> str:
    """Return the text of `fairway model list`: one line per version, newest first within each model."""
    if not models:
        return (
            "No models. Register one with: fairway model register mnist ./model, or name it in a job: outputs: {model: mnist}\n"
        )
    titled = any(model.title for model in models)
    columns = (
        Column("NAME", always=True),
        *((Column("MLFLOW NAME", loose=True),) if titled else ()),
        Column("ALIASES"),
        Column("FORMAT"),
        Column("METRICS", loose=True),
        Column("FROM", loose=True),
        Column("SIZE", right=True),
        Column("AGE", right=True),
        *((Column("DIGEST"), Column("TAGS", loose=True)) if page.wide else ()),
    )
    ordered = sorted(models, key=lambda model: (model.name, -model.version))
    rows = [
        [
            str(model),
            *((model.title,) if titled else ()),
            ",".join(model.aliases),
            model.format,
            ", ".join(f"{name} {phrase.measure(value)}" for name, value in model.metrics.items()),
            _origin(model.lineage),
            quantity.show_bytes(model.size),
            quantity.show_seconds(max(0.0, now - model.created)),
            *((model.digest[:12], _pairs(model.tags)) if page.wide else ()),
        ]
        for model in ordered
    ]
    return table(columns, rows, page)


def model_text(model: ModelView, now: float, page: TextPage = TextPage()) -> str:
    """Return the text of `fairway model get`: a version with its lineage and the next commands."""
    aliases = f"  {', '.join(model.aliases)}" if model.aliases else ""
    size = quantity.show_bytes(model.size)
    lines = [
        f"{page.paint(str(model), 'bold')}{aliases}",
        f"{_INDENT}{model.format}, {phrase.count(model.files, 'file')}, {size}, registered {phrase.ago(model.created, now)}",
    ]
    if model.title:
        lines.append(f"{_INDENT}MLflow clients call it {model.title}")
    if model.used_by:
        lines.append(f"{_INDENT}served by {model.used_by}")
    if model.batching:
        lines.append(f"{_INDENT}{model.batching}")
    for title, content in (
        ("Signature", _signature_lines(model.signature)),
        ("Metrics", _metric_lines(model)),
        ("Lineage", _lineage_lines(model.lineage)),
        ("Tags", [f"{name}: {value}" for name, value in model.tags.items()]),
        ("Files", _file_lines(model, page)),
    ):
        if content:
            lines += ["", page.paint(title, "bold"), *(_INDENT + line for line in content)]
    promote = "" if model.aliases else f"fairway model promote {model} champion, "
    following = f"{promote}fairway model pull {model} FOLDER"
    return "\n".join([*lines, "", f"{page.paint('next:', 'dim')} {following}"]) + "\n"


def model_diff(
    before: ModelVersion, after: ModelVersion, files_before: Sequence[ModelFile], files_after: Sequence[ModelFile]
) -> ModelDiffView:
    """Return the differences between two versions: files, signature, metrics, lineage."""
    old, new = before.lineage, after.lineage
    differences = [
        *_changed("format", {"": before.format}, {"": after.format}),
        *_changed("file", _by_path(files_before), _by_path(files_after)),
        *_changed("input", _tensors(before.signature.inputs), _tensors(after.signature.inputs)),
        *_changed("output", _tensors(before.signature.outputs), _tensors(after.signature.outputs)),
        *_changed("metric", _numbers(before.metrics), _numbers(after.metrics)),
        *_changed("best", _numbers(before.best), _numbers(after.best)),
        *_changed("run", {"": old.run}, {"": new.run}),
        *_changed("code", {"": old.code[:12]}, {"": new.code[:12]}),
        *_changed("data", old.data, new.data),
        *_changed("environment", old.environment, new.environment),
        *_changed("parameter", old.parameters, new.parameters),
        *_changed("source", {"": old.source}, {"": new.source}),
        *_changed("tag", before.tags, after.tags),
    ]
    return ModelDiffView(str(before), str(after), before.digest == after.digest, tuple(differences))


def model_diff_text(diff: ModelDiffView, page: TextPage = TextPage()) -> str:
    """Return the text of `fairway model diff`."""
    if not diff.differences:
        return f"{diff.before} and {diff.after} are the same\n"
    columns = (
        Column("WHAT", always=True),
        Column("NAME", loose=True),
        Column(diff.before, loose=True),
        Column(diff.after, loose=True),
    )
    text = table(
        columns,
        [
            [difference.what, difference.name, difference.before or "-", difference.after or "-"]
            for difference in diff.differences
        ],
        page,
    )
    return text + ("the files are the same\n" if diff.same_content else "")


def promotion_text(promotion: AliasPromotionView) -> str:
    """Return the result of a promotion in one line."""
    if not promotion.version:
        return f"{promotion.before} is no longer {promotion.alias}\n"
    if promotion.before == promotion.version:
        return f"{promotion.version} is {promotion.alias} already\n"
    return f"{promotion.version} is {promotion.alias}{f', before it was {promotion.before}' if promotion.before else ''}\n"


def _signature(signature: ModelSignature) -> ModelSignatureView:
    return ModelSignatureView(
        tuple(ModelTensorView(tensor.name, tensor.datatype, tensor.shape) for tensor in signature.inputs),
        tuple(ModelTensorView(tensor.name, tensor.datatype, tensor.shape) for tensor in signature.outputs),
    )


def _lineage(lineage: ModelLineage) -> ModelLineageView:
    return ModelLineageView(lineage.run, lineage.code, lineage.data, lineage.environment, lineage.parameters, lineage.source)


def _origin(lineage: ModelLineageView) -> str:
    return lineage.run.removeprefix("default/") or lineage.source


def _signature_lines(signature: ModelSignatureView) -> list[str]:
    pairs = (("in", signature.inputs), ("out", signature.outputs))
    return [
        f"{direction:<4}{tensor.name}  {tensor.datatype or '?'}{_shape(tensor.shape)}"
        for direction, tensors in pairs
        for tensor in tensors
    ]


def _lineage_lines(lineage: ModelLineageView) -> list[str]:
    facts = {
        "run": lineage.run,
        "source": lineage.source,
        "code": lineage.code[:12] if len(lineage.code) == 64 else lineage.code,
        "data": _pairs(lineage.data),
        "environment": _pairs(lineage.environment),
        "parameters": _pairs(lineage.parameters),
    }
    return [f"{name}: {value}" for name, value in facts.items() if value]


def _metric_lines(model: ModelView) -> list[str]:
    """Return the last value of each metric and the best value of its run."""
    lines = []
    for name in dict.fromkeys([*model.metrics, *model.best]):
        last = [phrase.measure(model.metrics[name])] if name in model.metrics else []
        best = [f"best {phrase.measure(model.best[name])}"] if name in model.best else []
        lines.append(f"{name} {', '.join(last + best)}")
    return lines


def _file_lines(model: ModelView, page: TextPage) -> list[str]:
    if not isinstance(model.contents, tuple):
        return []
    shown = model.contents if page.wide else model.contents[:_FILES_SHOWN]
    lines = [f"{file.path}  {quantity.show_bytes(file.size)}  {file.sha256[:12]}" for file in shown]
    hidden = len(model.contents) - len(shown)
    return [*lines, f"and {hidden} more (-o wide)"] if hidden else lines


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _shape(shape: Sequence[int]) -> str:
    return f"[{', '.join('any' if length < 0 else str(length) for length in shape)}]"


def _changed(what: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[ModelDifferenceView]:
    names = dict.fromkeys([*before, *after])
    return [
        ModelDifferenceView(what, name, before.get(name, ""), after.get(name, ""))
        for name in names
        if before.get(name, "") != after.get(name, "")
    ]


def _by_path(files: Sequence[ModelFile]) -> dict[str, str]:
    return {file.path: f"{quantity.show_bytes(file.size)} {file.sha256[:12]}" for file in files}


def _tensors(tensors: Sequence[TensorSpec]) -> dict[str, str]:
    return {tensor.name: f"{tensor.datatype}{_shape(tensor.shape)}" for tensor in tensors}


def _numbers(metrics: Mapping[str, float]) -> dict[str, str]:
    return {name: phrase.measure(value) for name, value in metrics.items()}
