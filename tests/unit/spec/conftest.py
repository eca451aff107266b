"""Generated documents, and a small validator of JSON Schema."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from fairway.spec.job import TrainingJob
from fairway.spec.queue import JobQueue
from fairway.spec.service import ModelService
from fairway.units import quantity

settings.register_profile("spec", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("spec")

_ODD = [
    "yes",
    "no",
    "on",
    "null",
    "~",
    "1",
    "0123",
    "1e3",
    "0x1F",
    "1_000",
    "1:30",
    "2020-01-01",
    ".5",
    "true",
    "=",
    "<<",
    "- a",
    "a: b",
    "#x",
]
_ODD += [
    "",
    " ",
    " a",
    "a ",
    "a\nb",
    "\na",
    "a\n",
    " a\nb",
    "a\n\nb\n",
    "#!/bin/bash\nset -x\n",
    "a\tb",
    "é",
    "名前",
    "\x85",
    "\u2028",
    "\ufeff",
]
_ODD += [
    "a'b",
    'a"b',
    "a\\b",
    "$HOME",
    "a;b",
    "&&",
    "|",
    ">",
    "`x`",
    "../x",
    "{x}",
    "[x]",
    "%x",
    "@x",
    "*x",
    "!x",
    "\x1b[31m",
    "\x7f",
    "🎉",
]

texts = st.sampled_from(_ODD) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
words = texts.filter(lambda text: "{{" not in text)
names = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
variables = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
durations = st.sampled_from(["90s", "5m", "1h30m", "2d", "0", "90", "0.5", "1.50", "300ms"])
amounts = st.sampled_from(["0", "1", "2", "0.5", "0.50", "500m", "1k", ".5", "007"])
sizes = st.sampled_from(["512Mi", "2Gi", "1G", "1024", "0.5Gi", "1.0", "01"])
label_keys = st.from_regex(r"([a-z]{1,5}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,8}[A-Za-z0-9])?", fullmatch=True)
label_values = st.from_regex(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,8}[A-Za-z0-9])?)?", fullmatch=True)
whole_gpus = st.sampled_from(["0", "1", "0.25", "8", "500m", "2.0"])
resource_names = st.sampled_from(["rdma/hca", "tpu", "npu", "gpus", "mem", "yes", "1", "cpu", "a b", "fpga-x"]) | texts.filter(
    bool
)
gpu_types = st.sampled_from(["H100", "A100", "a:b", "RTX 4090", "1"])
leaves = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | texts
fragments = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)


def _some(**fields: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries({}, optional=fields)


_resources = _some(
    cpu=amounts,
    memory=sizes,
    gpu=whole_gpus,
    gpu_type=st.lists(gpu_types, max_size=2),
    gpu_memory=sizes,
    shm=sizes | st.just("auto"),
    other=st.dictionaries(resource_names, st.integers(0, 10**6), max_size=3),
).filter(lambda asked: asked.get("gpu") != "0" or "gpu_memory" not in asked) | _some(
    gpu=st.sampled_from(["1", "8"]), gpu_share=st.sampled_from(["1", "0.25", "500m", ".5"]), gpu_memory=sizes
)
_placement = _some(
    nodes=st.lists(texts, max_size=2),
    devices=st.lists(texts, max_size=2),
    labels=st.dictionaries(texts, texts, max_size=2),
    tolerations=st.lists(texts.filter(str.strip), max_size=2),
    together=st.booleans(),
    same_rack=st.booleans(),
)


@st.composite
def _roles(draw: st.DrawFn) -> dict[str, object]:
    role = draw(
        _some(
            processes=st.integers(0, 8),
            env=st.dictionaries(variables, words, max_size=2),
            resources=_resources,
            placement=_placement,
        )
    )
    least = draw(st.integers(0, 3))
    role["replicas"] = {"min": least, "max": draw(st.integers(max(least, 1), 5))}
    if draw(st.booleans()):
        role["command"] = draw(st.lists(words, min_size=1, max_size=4))
    else:
        role["script"] = draw(texts.filter(bool))
    return role


_codes = _some(path=texts.filter(lambda text: "://" not in text), in_place=st.booleans()) | _some(in_place=st.booleans()).flatmap(
    lambda code: st.fixed_dictionaries({"git": st.fixed_dictionaries({"url": texts.filter(bool)}, optional={"ref": texts})}).map(
        lambda git: {**code, **git}
    )
)
_specs = st.fixed_dictionaries(
    {"roles": st.dictionaries(st.just("worker") | names, _roles(), min_size=1, max_size=3)},
    optional={
        "framework": st.sampled_from(["auto", "pytorch", "mpi"]),
        "code": _codes,
        "environment": _some(python=texts, requirements=texts, image=texts, container=st.sampled_from(["auto", "never"])),
        "env": st.dictionaries(variables, words, max_size=3),
        "data": st.dictionaries(names, texts.filter(str.strip), max_size=2),
        "stop": _some(at_step=st.integers(1, 10**9), when=st.sampled_from(["", "accuracy >= 0.98", "a < 1 and not (b > 2)"])),
        "timeout": durations,
        "grace": durations,
        "restart": _some(
            max=st.integers(0, 10), scope=st.sampled_from(["gang", "task"]), backoff=durations, backoff_max=durations
        ),
        "success": st.sampled_from(["auto", "all"]),
        "checkpoint": _some(every=durations, keep=st.integers(1, 9)),
        "metrics": _some(pattern=st.sampled_from(["", r"loss=(?P<loss>\S+)", "[[a]"])),
        "tensorboard": _some(dir=texts),
        "outputs": st.dictionaries(names, texts.filter(str.strip), max_size=2),
        "queue": names,
        "priority": st.integers(-1000, 1000).filter(bool),
        "keep": _some(logs=durations | st.just("forever"), record=durations | st.just("forever")),
        "kubernetes": _some(pod=st.dictionaries(texts, fragments, max_size=3), network=_some(host=st.booleans())),
    },
)
_jobs = st.builds(
    lambda metadata, spec, secrets: TrainingJob.model_validate(
        {"metadata": metadata, "spec": {**spec, "secrets": [name for name in secrets if not _is_variable(spec, name)]}}
    ),
    st.fixed_dictionaries(
        {"name": names},
        optional={
            "namespace": names,
            "labels": st.dictionaries(label_keys, label_values, max_size=2),
            "annotations": st.dictionaries(label_keys, texts, max_size=2),
        },
    ),
    _specs,
    st.lists(variables, max_size=2, unique=True),
)


_amounts = {
    "cpu": amounts,
    "memory": sizes,
    "gpu_types": st.dictionaries(gpu_types, st.sampled_from(["0", "1", "0.5", "500m"]), max_size=2),
    "other": st.dictionaries(resource_names.filter(lambda name: name != "cpu"), st.integers(0, 10**6), max_size=2),
}
_allotments = _some(**_amounts, gpu=st.sampled_from(["1", "8", "2.5", "1k"]))
_user_limits = _some(**_amounts, gpu=st.sampled_from(["1", "8", "2.5"]), runs=st.integers(0, 100))
_members = st.sampled_from(["*", "user:ann", "group:nlp", "user:anne-marie.o_9", "group:1"])
_limit_times, _default_times = st.sampled_from(["72h", "1d", "90"]), st.sampled_from(["30s", "60", "1m30s"])
_queues = st.builds(
    lambda metadata, spec: JobQueue.model_validate({"metadata": metadata, "spec": spec}),
    st.fixed_dictionaries(
        {"name": names},
        optional={
            "labels": st.dictionaries(label_keys, label_values, max_size=2),
            "annotations": st.dictionaries(label_keys, texts, max_size=2),
        },
    ),
    _some(
        members=st.lists(_members, min_size=1, max_size=3),
        weight=st.sampled_from(["1", "2", "0.5", "500m", ".5", "2.0"]),
        quota=_allotments,
        limits=_some(per_user=_user_limits, timeout=_limit_times, priority=st.integers(0, 1000)),
        borrow=st.booleans(),
        time_slice=st.sampled_from(["never", "1h", "90"]),
        defaults=_some(priority=st.integers(-1000, 0), timeout=_default_times),
    ),
)


_parts = st.sampled_from(["0%", "5%", "12.5%", "50%", "0.5", "1"])
_guards = _some(
    errors=_parts,
    p95=durations,
    slower=st.sampled_from(["0", "2", "1.5"]),
    metric=st.fixed_dictionaries(
        {"name": names}, optional={"better": st.sampled_from(["higher", "lower"]), "confidence": _parts}
    ),
    ready=durations,
)
_rollouts = st.one_of(
    _some(strategy=st.sampled_from(["rolling", "blue-green"]), guard=_guards),
    _some(
        strategy=st.sampled_from(["canary", "ab"]),
        steps=st.lists(st.fixed_dictionaries({"to": _parts}, optional={"for": durations}), max_size=3).map(
            lambda steps: sorted(steps, key=lambda step: quantity.percent(step["to"]))
        ),
        guard=_guards,
    ).filter(lambda policy: "strategy" in policy or "steps" not in policy),
)
_service_specs = _some(
    follow=st.booleans(),
    runtime=st.sampled_from(["auto", "onnx", "python"]),
    env=st.dictionaries(variables, words, max_size=2),
    replicas=st.sampled_from([{"min": 0, "max": 3}, {"min": 2, "max": 2}, {"min": 1, "max": 9}]),
    objective=_some(p95=durations),
    scaling=_some(utilisation=st.sampled_from(["50%", "75%", "1"]), hold=durations, idle=durations),
    batching=_some(
        mode=st.sampled_from(["auto", "always", "never"]), max=st.integers(1, 99), queue=st.integers(1, 99), deadline=durations
    ),
    sampling=_some(rate=_parts, dataset=names),
    environment=_some(python=texts, image=texts),
    traffic=_some(
        sticky=st.sampled_from(["", "user"]),
        headers=st.lists(st.fixed_dictionaries({"header": st.just("x-beta"), "value": words}), max_size=2),
    ),
    rollout=_rollouts,
    port=st.integers(0, 65535),
    hold=durations,
    grace=durations,
    queue=names,
    priority=st.integers(-1000, 1000),
)
_services = st.builds(
    lambda name, served, spec: ModelService.model_validate(
        {"metadata": {"name": name}, "spec": {**spec, **served, **({"follow": False} if "command" in served else {})}}
    ),
    names,
    st.one_of(
        st.sampled_from([{"model": "m"}, {"model": "mnist@champion"}]),
        st.fixed_dictionaries({"command": st.lists(words, min_size=1, max_size=3)}),
    ),
    _service_specs,
)


def _is_variable(spec: dict, name: str) -> bool:
    return name in spec.get("env", {}) or any(name in role.get("env", {}) for role in spec["roles"].values())


@pytest.fixture(scope="session")
def jobs() -> st.SearchStrategy[TrainingJob]:
    """Documents that satisfy every rule, with unusual texts wherever a text may appear."""
    return _jobs


@pytest.fixture(scope="session")
def documents() -> st.SearchStrategy[TrainingJob | JobQueue | ModelService]:
    """Documents of every kind that satisfy every rule."""
    return _jobs | _queues | _services


@pytest.fixture(scope="session")
def services() -> st.SearchStrategy[ModelService]:
    """Services that satisfy every rule."""
    return _services


@pytest.fixture(scope="session")
def queues() -> st.SearchStrategy[JobQueue]:
    """Queues that satisfy every rule."""
    return _queues


@pytest.fixture(scope="session")
def faults():
    """`faults(schema, value)` returns the violations of a schema by a value, as paths; covers the JSON Schema that we use."""
    return lambda schema, value: list(_faults(schema, value, schema, ""))


def _faults(schema, value, root, path):
    if isinstance(schema, bool):
        yield from () if schema else (f"{path}: nothing may be here",)
        return
    yield from _alternative_faults(schema, value, root, path)
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(_IS[name](value) for name in types) and not (value is None and schema.get("nullable")):
        yield f"{path}: no {types}"
        return
    yield from _scalar_faults(schema, value, path)
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"{path}: too few"
        for index, item in enumerate(value):
            yield from _faults(schema.get("items", True), item, root, f"{path}[{index}]")
    if isinstance(value, dict):
        yield from _object_faults(schema, value, root, path)


def _alternative_faults(schema, value, root, path):
    if "$ref" in schema:
        yield from _faults(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, root, path)
    if "if" in schema:
        branch = "else" if list(_faults(schema["if"], value, root, path)) else "then"
        yield from _faults(schema.get(branch, True), value, root, path)
    for one in schema.get("allOf", []):
        yield from _faults(one, value, root, path)
    if "anyOf" in schema and all(list(_faults(one, value, root, path)) for one in schema["anyOf"]):
        yield f"{path}: none of the alternatives"


def _scalar_faults(schema, value, path):
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        yield f"{path}: not the constant"
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{path}: pattern"
    if isinstance(value, str) and not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        yield f"{path}: length"
    if _IS["number"](value) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{path}: bounds"


def _object_faults(schema, value, root, path):
    for name in schema.get("required", []):
        if name not in value:
            yield f"{path}.{name}: missing"
    if len(value) < schema.get("minProperties", 0):
        yield f"{path}: too few"
    for name, item in value.items():
        yield from _faults(schema.get("propertyNames", True), name, root, f"{path}.{name}")
        below = [part for pattern, part in schema.get("patternProperties", {}).items() if re.search(pattern, name)]
        if name in schema.get("properties", {}):
            below.append(schema["properties"][name])
        for part in below or [schema.get("additionalProperties", True)]:
            yield from _faults(part, item, root, f"{path}.{name}")


_IS = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
