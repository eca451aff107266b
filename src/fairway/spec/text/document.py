"""Convert text to documents and back, in both spellings. All mistakes are reported together, each with its line and column."""

from __future__ import annotations

import json
import math

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fairway.errors import DocumentMistake, SpecError
from fairway.spec import validation
from fairway.spec.kind import KINDS, Document
from fairway.spec.text import syntax_tree
from fairway.spec.text.mistake_report import MistakeReport, in_words, show
from fairway.spec.text.placeholder import mend
from fairway.spec.text.reader import DocumentReader, FieldLocation, Location
from fairway.spec.text.syntax_tree import Node, TextPosition, YamlMapping, YamlScalar
from fairway.spec.text.writer import write
from fairway.units import suggestion

_MENDINGS = 4
"""Rounds of validation with the invalid values replaced, so that the rest is checked too. Each round can only uncover errors in
what encloses the values replaced before."""
_MISSING = {
    "name": "add for example `name: mnist`",
    "roles": "add what to run: `command: python train.py`, or `roles:` for several kinds of task",
    "url": "add the URL to clone from",
}


def read_documents(text: str, file: str = "") -> list[Document]:
    """Return the documents of a YAML or JSON text, in either spelling.

    Raises `SpecError` with every mistake of every document; nothing is returned when there is one.
    """
    nodes, yaml_mistakes = syntax_tree.compose(text)
    mistakes: list[DocumentMistake] = []
    for mistake in yaml_mistakes:
        mistake.file = file
    documents = [_read(node, file, mistakes) for node in nodes if not _is_empty(node)]
    if not documents and not yaml_mistakes:
        mistakes.append(DocumentMistake("contains no document", file=file, fix="write one, beginning with `kind: TrainingJob`"))
    if mistakes or yaml_mistakes:
        raise SpecError(sorted([*mistakes, *yaml_mistakes], key=lambda mistake: (mistake.line or math.inf, mistake.column)))
    return [document for document in documents if document is not None]


def read_data(data: object, file: str = "") -> Document:
    """Return one document from plain data, such as a JSON body, in either spelling. Raises `SpecError`."""
    mistakes: list[DocumentMistake] = []
    try:
        document = _read(syntax_tree.from_data(data), file, mistakes)
    except ValueError as error:
        raise SpecError([DocumentMistake(str(error), file=file)]) from None
    if document is None or mistakes:
        raise SpecError(mistakes)
    return document


def render(document: Document, to: str = "flat") -> str:
    """Return the document as YAML in the `flat` or the `kubernetes` spelling. Reading it again gives an equal document."""
    return write(document, to)


def _read(node: Node, file: str, mistakes: list[DocumentMistake]) -> Document | None:
    report = MistakeReport(file)
    document = _read_kind(node, report)
    mistakes.extend(report)
    return None if list(report) else document


def _read_kind(node: Node, report: MistakeReport) -> Document | None:
    if not isinstance(node, YamlMapping):
        report.add("is not a document", path="", place=node.place, fix="a document is a mapping; begin with `kind: TrainingJob`")
        return None
    kind = node.get("kind")
    if kind is None or not isinstance(kind.value, YamlScalar) or not kind.value.text:
        place = kind.value.place if kind else node.place
        report.add("is missing", path="kind", place=place, fix=f"add `kind: {next(iter(KINDS))}`")
        return None
    name = kind.value.text
    if name not in KINDS:
        fix = suggestion.did_you_mean(name, KINDS) or f"use one of {', '.join(KINDS)}"
        report.add("is not a known kind of document", path="kind", place=kind.value.place, value=show(name), fix=fix)
        return None
    reader = DocumentReader(report, is_flat=_is_flat(node))
    return _validated(KINDS[name], reader, node, report)


def _validated(model: type[Document], reader: DocumentReader, node: YamlMapping, report: MistakeReport) -> Document | None:
    data = reader.read(model, node)
    document = None
    for _ in range(_MENDINGS):
        try:
            # The schema of the Kubernetes spelling describes strict JSON: no text for numbers, lists for tuples.
            document = model.model_validate_json(json.dumps(data), strict=True)
            break
        except ValidationError as error:
            entries = error.errors(include_url=False)
            _report_errors(entries, reader.spots, report)
            for entry in entries:
                mend(data, entry["loc"])
    for problem in validation.problems(document) if document else ():
        if problem.is_of_whole and list(report):
            continue
        spot = _nearest_spot(reader.spots, problem.at)
        report.add(problem.message, path=spot.path, place=spot.node.place, value=show(spot.value), fix=problem.fix)
    return document


def _report_errors(entries: list[ErrorDetails], spots: dict[Location, FieldLocation], report: MistakeReport) -> None:
    """Report pydantic's errors with the user's own field names. Of several errors about one value, the last is the strictest."""
    by_path: dict[str, tuple[str, str, str, TextPosition]] = {}
    for entry in entries:
        at = entry["loc"]
        is_key = bool(at) and at[-1] == "[key]"
        is_missing = entry["type"] == "missing"
        spot = _nearest_spot(spots, at[:-1] if is_key or is_missing else at)
        message, fix = in_words(entry["type"], entry.get("ctx", {}), entry["input"], entry["msg"])
        path, value, place = spot.path, show(spot.value), spot.key_place if is_key else spot.node.place
        if is_missing:
            path, value, fix = syntax_tree.step_into(path, str(at[-1])), "", _MISSING.get(str(at[-1]), fix)
        elif is_key:
            value = show(at[-2])
        by_path[path] = (message, fix, value, place)
    for path, (message, fix, value, place) in by_path.items():
        if not report.has(path):
            report.add(message, path=path, place=place, value=value, fix=fix)


def _nearest_spot(spots: dict[Location, FieldLocation], at: Location) -> FieldLocation:
    while at not in spots:
        at = at[:-1]
    return spots[at]


def _is_flat(node: YamlMapping) -> bool:
    names = node.names
    return not ({"metadata", "spec"} & names or ("apiVersion" in names and "name" not in names))


def _is_empty(node: Node) -> bool:
    return isinstance(node, YamlScalar) and node.plain and syntax_tree.resolve(node) is None
