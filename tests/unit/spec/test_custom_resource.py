"""The schema of a definition must be structural, or API servers refuse it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.spec.custom_resource import structural
from fairway.spec.job import JobSpec
from fairway.spec.queue import QueueSpec
from fairway.spec.service import ServiceSpec
from fairway.spec.text.writer import kubernetes_data

TYPES = {"object", "array", "string", "integer", "number", "boolean"}
ALLOWED = {
    "type", "description", "properties", "additionalProperties", "items", "required", "enum", "default", "nullable", "pattern",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems",
    "minProperties", "x-kubernetes-preserve-unknown-fields",
}  # fmt: skip


def unstructural(node, path="$"):
    """Yield what an API server would refuse."""
    for refused, reason in rules(node):
        if refused:
            yield f"{path}: {reason}"
    for name, part in node.get("properties", {}).items():
        yield from unstructural(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from unstructural(node[key], f"{path}.{key}")


def rules(node):
    kind, default = node.get("type"), node.get("default", "")
    odd = sorted(set(node) - ALLOWED)
    yield kind not in TYPES, "exactly one type is needed"
    yield odd, f"{odd} is not allowed"
    yield "properties" in node and "additionalProperties" in node, "properties and additionalProperties exclude each other"
    yield ("properties" in node or "additionalProperties" in node) and kind != "object", "only an object has properties"
    yield (kind == "array") != ("items" in node), "an array needs items, and only an array has them"
    yield any(not isinstance(node.get(key, True), bool) for key in ("exclusiveMinimum", "nullable")), "must be true or false"
    yield default is None or isinstance(default, dict | list), "such a default breaks"
    yield "default" in node and default not in node.get("enum", [default]), "the default is none of the choices"
    yield not set(node.get("required", [])) <= set(node.get("properties", {})), "requires what it has not"
    yield re.compile(node.get("pattern", "")).groups > 20, "the pattern is beyond reason"


MODELS = {"TrainingJob": JobSpec, "JobQueue": QueueSpec, "ModelService": ServiceSpec}


@pytest.mark.parametrize("kind", MODELS)
def test_structural(kind):
    assert list(unstructural(structural(MODELS[kind]))) == []


def test_the_check_can_fail():
    for bad in (
        {},
        {"type": "object", "$ref": "x"},
        {"type": "string", "anyOf": []},
        {"type": ["string"]} and {"type": "null"},
        {"type": "array"},
    ):
        assert list(unstructural(bad))


def test_amounts_by_name():
    quota = structural(QueueSpec)["properties"]["quota"]["properties"]
    assert (quota["gpu"]["type"], quota["gpuTypes"]["additionalProperties"]["type"]) == ("string", "string")


def test_fields_of_note():
    spec = structural(JobSpec)["properties"]
    role = spec["roles"]["additionalProperties"]["properties"]
    assert spec["kubernetes"]["properties"]["pod"] == {
        "description": "A fragment of a PodSpec, merged into the spec of each pod.",
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    assert spec["timeout"]["nullable"] is True
    assert "default" not in spec["timeout"]
    assert spec["framework"]["default"] == "auto"
    assert "jax" in spec["framework"]["enum"]
    assert role["resources"]["properties"]["gpuType"] == {
        "type": "array",
        "description": "Accepted GPU types; any one of them will do.",
        "items": {"type": "string"},
    }
    assert role["replicas"]["properties"]["max"]["maximum"] == 10_000


@given(data=st.data())
def test_documents_in_the_kubernetes_spelling_keep_it(documents, faults, data):
    document = data.draw(documents)
    assert faults(structural(MODELS[document.kind]), kubernetes_data(document)["spec"]) == []


@pytest.mark.parametrize("kind", MODELS)
def test_descriptions_are_one_line(kind):
    def descriptions(node):
        yield node.get("description", "")
        for part in [
            *node.get("properties", {}).values(),
            *(node[key] for key in ("items", "additionalProperties") if key in node),
        ]:
            yield from descriptions(part)

    texts = list(descriptions(structural(MODELS[kind])))
    assert any(len(text) > 130 for text in texts)  # at least one docstring has several lines
    assert not [text for text in texts if "\n" in text]
