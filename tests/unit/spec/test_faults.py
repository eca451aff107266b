"""Each field wrong in turn, and text that is no document: always a `SpecError` that points at the place, nothing else."""

import copy

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import SpecError
from fairway.spec import json_schema
from fairway.spec.text.document import read_data, read_documents, render

BASES = {
    "flat": {"kind": "TrainingJob", "name": "x", "roles": {"worker": {"command": ["run"]}}},
    "shorthand": {"kind": "TrainingJob", "name": "x", "command": ["run"]},
    "kubernetes": {
        "apiVersion": "fairway.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "x"},
        "spec": {"roles": {"worker": {"command": ["run"]}}},
    },
    "queue-flat": {"kind": "JobQueue", "name": "x"},
    "queue-kubernetes": {"apiVersion": "fairway.dev/v1alpha1", "kind": "JobQueue", "metadata": {"name": "x"}, "spec": {}},
    "service-flat": {"kind": "ModelService", "name": "x", "model": "m"},
    "service-command": {"kind": "ModelService", "name": "x", "command": ["run"]},
    "service-kubernetes": {
        "apiVersion": "fairway.dev/v1alpha1",
        "kind": "ModelService",
        "metadata": {"name": "x"},
        "spec": {"model": "m"},
    },
}
KEYS = {"env": "A", "labels": "a", "annotations": "a", "data": "d", "outputs": "o", "roles": "worker", "other": "r"}
KEYS |= {"gpu_types": "A100", "gpuTypes": "A100"}
NEEDED = {"git": {"url": "u"}, "metric": {"name": "m"}, "cors": {"origins": ["https://a.example"]}}
ROLE_FIELDS = ("command", "script", "replicas", "processes", "resources", "limits", "placement")
WRONG = ("WRONG", [["WRONG"]], {"WRONG": ["WRONG"]}, -123456, 1234567)


SPELLINGS = {"flat": json_schema.flat_schema, "kubernetes": json_schema.kubernetes_schema}


def fields(part, root, path=()):
    """Yield every place of a schema with a value, and the schemas that the value may have."""
    choices = [root["$defs"][part["$ref"].removeprefix("#/$defs/")]] if "$ref" in part else [part]
    choices = [inner for choice in choices for inner in (choice.get("anyOf") if path and "anyOf" in choice else [choice])]
    choices = [root["$defs"][choice["$ref"].removeprefix("#/$defs/")] if "$ref" in choice else choice for choice in choices]
    if path:
        yield path, part
    for choice in choices:
        for name, inner in choice.get("properties", {}).items():
            yield from fields(inner, root, (*path, name))
        for inner in (*choice.get("patternProperties", {}).values(), choice.get("additionalProperties")):
            if isinstance(inner, dict) and path and path[-1] in KEYS:
                yield from fields(inner, root, (*path, KEYS[path[-1]]))


def cases():
    """Yield (base, path, schema of the field, whole schema) for every field of both spellings."""
    roots = {"flat": json_schema.flat_schema(), "kubernetes": json_schema.kubernetes_schema()}
    roots |= {"queue-flat": json_schema.flat_schema("JobQueue"), "queue-kubernetes": json_schema.kubernetes_schema("JobQueue")}
    roots |= {f"service-{spelling}": made("ModelService") for spelling, made in SPELLINGS.items()}
    for spelling, root in roots.items():
        for path, part in dict(fields(root, root)).items():
            base = "shorthand" if spelling == "flat" and path[0] in ROLE_FIELDS else spelling
            base = "service-command" if spelling == "service-flat" and path[0] == "command" else base
            yield pytest.param(base, path, {**part, "$defs": root["$defs"]}, id=f"{base}-{'.'.join(path)}")


def is_refused(part, value, faults):
    """Return whether the schema refuses the value; a number also as text, as the flat spelling accepts it for text."""
    return bool(faults(part, value)) and (isinstance(value, str | list | dict) or bool(faults(part, str(value))))


@pytest.mark.parametrize(("base", "path", "part"), list(cases()))
def test_every_field_wrong_in_turn(base, path, part, faults):
    for value in WRONG:
        if is_refused(part, value, faults):
            found_where_it_is(base, path, value)


def found_where_it_is(base, path, value):
    document = copy.deepcopy(BASES[base])
    place = document
    for step in path[:-1]:
        place = place.setdefault(step, dict(NEEDED.get(step, {})))
        if step == "rollout" and "outputs" in path:
            place["strategy"] = "shadow"  # no other strategy compares outputs
    if path[-1] == "script":
        place.pop("command", None)
    if path == ("code", "ref"):
        place["git"] = "u"
    place[path[-1]] = value
    text = yaml.dump(document, sort_keys=False, default_flow_style=True, width=10_000).replace(", ", ",\n")
    marker = yaml.dump(value, default_flow_style=True, width=10_000).replace("\n...", "").strip()
    where = text.index(f"{path[-1]}: {marker}") + len(path[-1]) + 2
    line, column = text.count("\n", 0, where) + 1, where - text.rfind("\n", 0, where)
    with pytest.raises(SpecError) as caught:
        read_documents(text, "job.yaml")
    dotted = ".".join(path)
    assert caught.value.mistakes
    for mistake in caught.value.mistakes:
        assert mistake.path == dotted or mistake.path.startswith((dotted + ".", dotted + "[")), str(mistake)
        assert (mistake.file, mistake.line) == ("job.yaml", line), str(mistake)
        assert mistake.column == column if mistake.path == dotted else mistake.column >= column, str(mistake)


@given(data=st.data())
def test_an_unknown_field_anywhere_is_found(jobs, data):
    job = data.draw(jobs)
    for spelling in ("flat", "kubernetes"):
        document = yaml.safe_load(render(job, spelling))
        groups = [document] if spelling == "flat" else [document, document["metadata"], document["spec"]]
        data.draw(st.sampled_from(groups))["zebra-crossing"] = 1
        with pytest.raises(SpecError, match="zebra-crossing: is not a field here"):
            read_data(document)


def outcome(read, given):
    try:
        return read(given, "f")
    except SpecError as error:
        return error


def judged(text):
    """Read the text; anything but documents or a SpecError with messages fails the test."""
    found = outcome(read_documents, text)
    assert found
    if isinstance(found, SpecError):
        assert found.mistakes
        assert all(mistake.message and mistake.file == "f" for mistake in found.mistakes)


@given(st.text(max_size=200))
def test_any_text(text):
    judged(text)


@given(st.text(":-[]{}&*!|>'\"#%@`,? \n\t~0aTrue", max_size=60))
def test_any_text_that_looks_like_yaml(text):
    judged(f"kind: TrainingJob\nname: x\ncommand: {text}")


@given(data=st.data())
def test_a_document_with_some_characters_changed(jobs, data):
    text = render(data.draw(jobs), data.draw(st.sampled_from(["flat", "kubernetes"])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        text = (
            text[:at]
            + data.draw(
                st.sampled_from(["", ":", " ", "\n", "'", '"', "[", "{", "}", "-", "&a ", "*a", "\t", "x", "0", "\\", "|", "\0"])
            )
            + text[at + 1 :]
        )
    judged(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.sampled_from(ROLE_FIELDS), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = sorted(json_schema.flat_schema()["properties"])


@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6), st.booleans())
def test_any_values_in_known_fields(fields, nested):
    document = {"kind": "TrainingJob", "name": "x", **fields}
    if nested:
        document = {"apiVersion": "fairway.dev/v1alpha1", "kind": "TrainingJob", "metadata": fields, "spec": fields}
    found = outcome(read_data, document)
    assert not isinstance(found, SpecError) or found.mistakes
