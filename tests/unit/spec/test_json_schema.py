"""The schemas agree with what the reader accepts and the writer produces."""

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fairway.spec import json_schema
from fairway.spec.text.document import read_documents, render
from fairway.spec.text.reader import plain_data
from fairway.spec.text.syntax_tree import compose
from fairway.spec.text.writer import flat_data, kubernetes_data

SCHEMAS = {
    "flat": json_schema.flat_schema(),
    "kubernetes": json_schema.kubernetes_schema(),
    "JobQueue.flat": json_schema.flat_schema("JobQueue"),
    "JobQueue.kubernetes": json_schema.kubernetes_schema("JobQueue"),
    "ModelService.flat": json_schema.flat_schema("ModelService"),
    "ModelService.kubernetes": json_schema.kubernetes_schema("ModelService"),
    "both": json_schema.json_schema(),
}
ROOTS = {f"$.{kind}.{spelling}" for kind in ("TrainingJob", "JobQueue", "ModelService") for spelling in ("flat", "kubernetes")}


def nodes(part, path="$"):
    """Yield every schema inside a schema."""
    if not isinstance(part, dict):
        return
    yield path, part
    for key in ("properties", "patternProperties", "$defs"):
        for name, inner in part.get(key, {}).items():
            yield from nodes(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties", "propertyNames", "if", "then", "else"):
        yield from nodes(part.get(key), f"{path}.{key}")
    for key in ("anyOf", "allOf"):
        for index, inner in enumerate(part.get(key, [])):
            yield from nodes(inner, f"{path}.{key}{index}")


@pytest.mark.parametrize("name", SCHEMAS)
def test_references_lead_somewhere_and_patterns_compile(name):
    root = SCHEMAS[name]
    assert root["$schema"].endswith("2020-12/schema")
    assert json.loads(json.dumps(root)) == root
    for path, part in nodes(root):
        if "$ref" in part:
            assert part["$ref"].removeprefix("#/$defs/") in root["$defs"], path
        re.compile(part.get("pattern", ""))
        assert "title" not in part or path in ("$", *ROOTS)


@pytest.mark.parametrize("name", [name for name in SCHEMAS if name != "both"])
def test_every_field_has_a_description(name):
    root = SCHEMAS[name]
    silent = []
    for path, part in nodes(root):
        for field, inner in part.get("properties", {}).items():
            target = root["$defs"].get(inner.get("$ref", "").removeprefix("#/$defs/"), {})
            if not (inner.get("description") or target.get("description")):
                silent.append(f"{path}.{field}")
    assert silent == []


@given(data=st.data())
def test_what_is_written_keeps_the_schema(jobs, faults, data):
    job = data.draw(jobs)
    for name, made in (("flat", flat_data(job)), ("kubernetes", kubernetes_data(job))):
        assert faults(SCHEMAS[name], made) == []
        assert faults(SCHEMAS["both"], made) == []


@given(data=st.data())
def test_what_is_read_keeps_the_schema(jobs, faults, data):
    """The rendered text, as an editor would parse it."""
    job = data.draw(jobs)
    for name in ("flat", "kubernetes"):
        assert faults(SCHEMAS[name], yaml.safe_load(render(job, name))) == []


@pytest.mark.parametrize(
    "text",
    [
        "command: run",
        "script: |\n  run\n",
        "command: [run]\nreplicas: {min: 1, max: 4}\nprocesses: auto",
        "command: run\nreplicas: 3\nprocesses: 2\nresources: {gpu: H100:8, tpu: 1, rdma/hca: 2, cpu: 1, memory: 1073741824}",
        "command: run\nresources: {gpu_type: A100, gpu: 0.5}\nlimits: {memory: 2Gi}\nplacement: {nodes: a, devices: [b]}",
        "command: run\ncode: .\nenvironment: .venv\nrestart: 3\ncheckpoint: 5m\ntensorboard: runs\ntimeout: 90\nsecrets: A",
        "command: run\ncode: {git: URL, ref: main}\nenvironment: {image: x}\nrestart: {scope: task}\ncheckpoint: {keep: 2}",
        "command: run\ncode: {git: {url: URL}}\nenv: {A: 1, B: true, C: x, D: }\nlabels: {a: 1}\nstop: {at_step: 1, when: a > 1}",
        "roles: {chief: {command: run}, ps: {script: run, env: {A: 1}}}\nsuccess: chief\nkubernetes: {pod: {x: [1]}}",
    ],
)
def test_short_forms_keep_the_schema(text, faults):
    text = f"kind: TrainingJob\nname: x\n{text}"
    assert read_documents(text)
    (node,), _ = compose(text)
    assert faults(SCHEMAS["flat"], plain_data(node)) == []
    assert faults(SCHEMAS["both"], plain_data(node)) == []


@given(data=st.data())
def test_queues_keep_their_schema(queues, faults, data):
    queue = data.draw(queues)
    for spelling, made in (("flat", flat_data(queue)), ("kubernetes", kubernetes_data(queue))):
        assert faults(SCHEMAS[f"JobQueue.{spelling}"], made) == []
        assert faults(SCHEMAS["both"], made) == []
        assert faults(SCHEMAS[f"JobQueue.{spelling}"], yaml.safe_load(render(queue, spelling))) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "members: user:ann\nweight: 2\nquota: {cpu: 64, gpu: {A100: 8, H100: 0.5}, rdma/hca: 2, memory: 1Ti}",
        "quota: {gpu: 8, gpu_types: {A100: 4}}\nlimits: {per_user: {gpu: A100:8, runs: 3, tpu: 1}, timeout: 72h, priority: 10}",
        "members: [group:nlp, '*']\nborrow: no\ntime_slice: 3600\ndefaults: {priority: -1, timeout: 90}",
    ],
)
def test_short_forms_of_a_queue_keep_the_schema(text, faults):
    text = f"kind: JobQueue\nname: x\n{text}"
    assert read_documents(text)
    (node,), _ = compose(text.replace("borrow: no", "borrow: false"))
    assert faults(SCHEMAS["JobQueue.flat"], plain_data(node)) == []
    assert faults(SCHEMAS["both"], plain_data(node)) == []


@given(data=st.data())
def test_services_keep_their_schema(services, faults, data):
    service = data.draw(services)
    for spelling, made in (("flat", flat_data(service)), ("kubernetes", kubernetes_data(service))):
        assert faults(SCHEMAS[f"ModelService.{spelling}"], made) == []
        assert faults(SCHEMAS["both"], made) == []
        assert faults(SCHEMAS[f"ModelService.{spelling}"], yaml.safe_load(render(service, spelling))) == []


@pytest.mark.parametrize("text", ["zebra: 1", "members: []", "members: ann", "weight: x", "quota: {gpu: {A100: x}}", "quota: 3"])
def test_mistakes_in_a_queue_break_the_schema(text, faults):
    document = {"kind": "JobQueue", "name": "x", **yaml.safe_load(text)}
    assert faults(SCHEMAS["JobQueue.flat"], document)
    assert faults(SCHEMAS["both"], document)


def test_a_kind_that_is_none_breaks_the_schema(faults):
    assert faults(SCHEMAS["both"], {"kind": "Job", "name": "x", "command": "run"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "command: run\nzebra: 1",
        "command: run\nreplicas: 0",
        "command: run\nname: X",
        "command: run\nrestart: {max: x}",
        "command: run\ntimeout: soon",
    ],
)
def test_mistakes_break_the_schema(text, faults):
    document = {"kind": "TrainingJob", "name": "x", **(yaml.safe_load(text) or {})}
    assert faults(SCHEMAS["flat"], document)
    assert faults(SCHEMAS["both"], document)
