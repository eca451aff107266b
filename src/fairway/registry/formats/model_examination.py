"""Examines a folder of model files: its format, its signature, and whether it may be kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fairway.errors import RefusedError
from fairway.registry.formats import export_metadata as beside
from fairway.registry.formats import file_content
from fairway.registry.formats.damaged_file import check_signature, printed, reading
from fairway.registry.formats.export_metadata import ExportMetadata
from fairway.registry.formats.format_choice import choose, risks, with_loader
from fairway.registry.formats.format_table import NAMES, TABLE
from fairway.registry.formats.model_format import Files, LoadRisk
from fairway.registry.formats.records import mlflow
from fairway.state.model import ModelSignature
from fairway.units import suggestion


@dataclass(frozen=True, slots=True)
class ModelExamination:
    """The result of an examination."""

    format: str
    entry: str
    """The model's file, relative to the top of the folder."""
    signature: ModelSignature = ModelSignature()
    metrics: dict[str, float] = field(default_factory=dict)


def examine(
    files: Files, *, asked: str = "", allow_pickle: bool = False, made_here: bool = False, kept: bool = True
) -> ModelExamination:
    """Examine the files of a model, by path from the top of its folder; a refusal names the problem and its fix.

    `asked` is the requested format; `python` is never guessed. Nothing is loaded or run. Files that run code when they are
    loaded are refused at any depth, unless `allow_pickle` gives consent; `made_here` gives it for everything but pickles.
    Without `kept` the files are not the registry's and may change meanwhile: large ones are then not mapped.
    """
    if asked and asked not in TABLE:
        message = f"there is no format {asked!r}"
        raise RefusedError(message, fix=suggestion.did_you_mean(asked, NAMES) or f"use one of {', '.join(NAMES)}")
    risky = risks(files)
    always = [name for name, risk in risky.items() if risk.always]
    if always and not allow_pickle:
        raise refusal(always, risky)
    about = beside.read(files[beside.NAME]) if beside.NAME in files else ExportMetadata()
    if about.format and about.format not in TABLE:
        raise beside.wrong(f"format is {about.format!r}, not one of {', '.join(NAMES)}")
    if about.format == "python" and asked != "python":
        message = f"{beside.NAME} declares a Python class, which runs its own code when it is loaded"
        raise RefusedError(message, fix="if you trust it, use --format python")
    format, entry = choose(files, asked or about.format, about.entry, risky)
    record = TABLE[format]
    risky = with_loader(risky, format, entry)
    if entry in risky and risky[entry].always and not allow_pickle:
        raise refusal([entry], risky)
    large = record.mapped and not kept and files[entry].stat().st_size > file_content.WHOLE
    with reading(entry):
        signature = ModelSignature() if large else record.signature(files, entry)
    declared = about.as_signature()
    # After the checks of the content: consent does not help with a damaged file.
    if risky and not allow_pickle and not made_here:
        raise refusal(list(risky), risky)
    if format not in ("mlflow", "onnx", "savedmodel") and "MLmodel" in files and not declared.inputs:
        declared = ModelSignature(
            mlflow.columns(files).inputs or signature.inputs or mlflow.tensors(files).inputs, declared.outputs
        )
    joined = _joined(format, signature, declared)
    check_signature(entry, joined)
    return ModelExamination(format, entry, joined, about.metrics)


def _joined(format: str, found: ModelSignature, told: ModelSignature) -> ModelSignature:
    """Combine the signature in the file with the one declared in `fairway.json`.

    ONNX and SavedModel files come first; for all others a declared side does: rows of features may be declared by column.
    """
    if format in ("onnx", "savedmodel"):
        return found if found.outputs else told
    return ModelSignature(told.inputs or found.inputs, told.outputs or found.outputs)


def refusal(names: list[str], risky: Mapping[str, LoadRisk]) -> RefusedError:
    """Return the refusal for lack of consent: which file, why, and the flag."""
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    message = f"{printed(names[0])}{more} {printed(risky[names[0]].what)}: loading it can execute arbitrary code"
    fix = "export the model as ONNX (fairway.runtime.export) or safetensors; or, if you trust the author: --allow-pickle"
    return RefusedError(message, fix=fix)
