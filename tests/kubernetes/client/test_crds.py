"""How a real API server treats our definitions: defaults, validation, scale, columns, explanations, upgrades."""

from __future__ import annotations

import copy
import json

import pytest
from api_world import until
from cluster.control_plane import ControlPlane

from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.crd.definition import CLUSTER_FIELDS, definition
from fairway.engines.kubernetes.objects import GpuNodeSpec
from fairway.spec.job import JobSpec
from fairway.spec.service import ServiceSpec

pytestmark = pytest.mark.usefixtures("our_kinds")

WORKER = {"command": ["python", "train.py"], "replicas": {"min": 1, "max": 4}}


def job(namespace: str, name: str = "mnist", **spec: object) -> dict:
    given = {"roles": {"worker": WORKER}, **spec}
    return {
        "apiVersion": "fairway.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": given,
    }


def service(namespace: str, **spec: object) -> dict:
    return {
        "apiVersion": "fairway.dev/v1alpha1",
        "kind": "ModelService",
        "metadata": {"name": "mnist", "namespace": namespace},
        "spec": {"model": "mnist@1", **spec},
    }


async def test_defaults_are_those_of_the_models(client: ApiClient, namespace: str) -> None:
    made = (
        await client.apply(api_resource.TRAINING_JOBS, job(namespace, roles={"worker": {"command": ["a"]}}), manager="m")
    ).spec_data()
    assert (made["framework"], made["queue"], made["size"]) == ("auto", "default", 0)
    assert made["roles"]["worker"]["replicas"] == {"min": 1, "max": 1}
    for field in CLUSTER_FIELDS["TrainingJob"]:
        made.pop(field, None)
    assert JobSpec.model_validate(made) == JobSpec.model_validate({"roles": {"worker": {"command": ["a"]}}})
    served = (await client.apply(api_resource.MODEL_SERVICES, service(namespace), manager="m")).spec_data()
    for field in CLUSTER_FIELDS["ModelService"]:
        served.pop(field)
    assert ServiceSpec.model_validate(served) == ServiceSpec(model="mnist@1")


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        (
            {"roles": {"worker": {"command": ["a"], "script": "b"}}},
            "spec.roles[worker]",
            "needs a command or a script, and not both",
        ),
        ({"roles": {"worker": {}}}, "spec.roles[worker]", "needs a command or a script, and not both"),
        (
            {"roles": {"w": {**WORKER, "replicas": {"min": 3, "max": 2}}}},
            "spec.roles[w].replicas",
            "min is more than max; swap them",
        ),
        ({"roles": {}}, "spec.roles", "should have at least 1 properties"),
        ({"code": {"path": ".", "git": {"url": "x"}}}, "spec.code", "has a path and a git source; keep one of them"),
        ({"framework": "caffe"}, "spec.framework", 'supported values: "auto"'),
        ({"priority": 1001}, "spec.priority", "less than or equal to 1000"),
        ({"queue": "Not A Name"}, "spec.queue", "should match"),
        ({"roles": {"r" * 53: WORKER}}, "<nil>", "together must have at most 57 characters"),
    ],
)
async def test_refusals_name_the_field_and_the_fix(client: ApiClient, namespace: str, spec: dict, field: str, words: str) -> None:
    with pytest.raises(errors.Invalid) as caught:
        await client.apply(api_resource.TRAINING_JOBS, job(namespace, **spec), manager="m")
    found = {cause.field: cause.message for cause in caught.value.causes}
    assert words in found[field]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"command": ["a"]}, "needs a model or a command, and not both"),
        ({"model": ""}, "needs a model or a command, and not both"),
        ({"rollout": {"steps": [{"to": "5%"}]}}, "has steps, and rolling and blue-green know none"),
        ({"replicas": {"max": 2}, "floor": 3}, "the floor (`/scale`) is more than replicas.max"),
    ],
)
async def test_refusals_of_services(client: ApiClient, namespace: str, spec: dict, words: str) -> None:
    with pytest.raises(errors.Invalid, match=words.replace("(", r"\(").replace(")", r"\)")):
        await client.apply(api_resource.MODEL_SERVICES, service(namespace, **spec), manager="m")


async def test_names_that_make_no_host_names(client: ApiClient, namespace: str) -> None:
    for name in ("a.b", "1a", "a" * 53):
        with pytest.raises(errors.Invalid, match="the name must be lower-case letters"):
            await client.apply(api_resource.TRAINING_JOBS, job(namespace, name), manager="m")


async def test_a_job_is_one_run(client: ApiClient, namespace: str) -> None:
    await client.apply(api_resource.TRAINING_JOBS, job(namespace), manager="m")
    for spec in (
        {"framework": "jax"},
        {"roles": {"worker": {**WORKER, "command": ["other"]}}},
        {"roles": {"worker": WORKER, "ps": WORKER}},
    ):
        with pytest.raises(errors.Invalid, match="a job is one run; create another"):
            await client.apply(api_resource.TRAINING_JOBS, job(namespace, **spec), manager="m")
    changed = await client.apply(
        api_resource.TRAINING_JOBS, job(namespace, suspend=True, priority=5, queue="research"), manager="m"
    )
    assert (changed.metadata.generation, changed.spec_data()["suspend"]) == (2, True)


async def test_status_is_apart_from_the_spec(client: ApiClient, namespace: str) -> None:
    made = await client.apply(api_resource.TRAINING_JOBS, job(namespace), manager="m")
    body = {key: job(namespace)[key] for key in ("apiVersion", "kind", "metadata")}
    ready = {
        "type": "Running",
        "status": "True",
        "reason": "Started",
        "message": "",
        "lastTransitionTime": "2026-11-15T07:10:35Z",
    }
    told = {**body, "status": {"phase": "Running", "conditions": [ready]}}
    after = await client.apply_status(api_resource.TRAINING_JOBS, told, manager="fairway-operator-status")
    assert (after.status["phase"], after.metadata.generation) == ("Running", made.metadata.generation)
    other = {**body, "status": {"conditions": [{**ready, "type": "Admitted"}]}}
    both = await client.apply_status(api_resource.TRAINING_JOBS, other, manager="somebody-else")
    assert {one["type"] for one in both.status["conditions"]} == {"Running", "Admitted"}
    same = await client.apply_status(api_resource.TRAINING_JOBS, told, manager="fairway-operator-status")
    assert same.metadata.resource_version == both.metadata.resource_version
    found = await client.list(api_resource.TRAINING_JOBS, namespace, fields="status.phase=Running,spec.queue=default")
    assert [one.metadata.name for one in found.items] == ["mnist"]


async def test_scale_of_a_job_is_its_size_and_of_a_service_its_floor(client: ApiClient, namespace: str) -> None:
    await client.apply(api_resource.TRAINING_JOBS, job(namespace), manager="m")
    await client.scale(api_resource.TRAINING_JOBS, "mnist", namespace, 3)
    assert (await client.get(api_resource.TRAINING_JOBS, "mnist", namespace)).spec_data()["size"] == 3
    await client.apply(api_resource.MODEL_SERVICES, service(namespace, replicas={"min": 0, "max": 4}), manager="m")
    await client.scale(api_resource.MODEL_SERVICES, "mnist", namespace, 2)
    after = (await client.get(api_resource.MODEL_SERVICES, "mnist", namespace)).spec_data()
    assert (after["floor"], after["replicas"]) == (2, {"min": 0, "max": 4})
    with pytest.raises(errors.Invalid, match=r"raise replicas\.max first"):
        await client.scale(api_resource.MODEL_SERVICES, "mnist", namespace, 5)
    # Applying the document again keeps the floor, because it is no field of the document.
    again = await client.apply(api_resource.MODEL_SERVICES, service(namespace, replicas={"min": 0, "max": 3}), manager="m")
    assert again.spec_data()["floor"] == 2


async def test_a_queue_of_nothing_and_a_node_of_gpus(client: ApiClient) -> None:
    queue = {"apiVersion": "fairway.dev/v1alpha1", "kind": "JobQueue", "metadata": {"name": "research"}}
    assert (await client.apply(api_resource.JOB_QUEUES, queue, manager="m")).spec_data()["weight"] == "1"
    node = {"apiVersion": "fairway.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": "n1"}}
    assert (await client.apply(api_resource.GPU_NODES, node, manager="m")).spec == GpuNodeSpec()
    for uuid, healthy in (("GPU-1", True), ("GPU-2", False)):
        status = {"gpus": [{"uuid": uuid, "healthy": healthy}]}
        found = await client.apply_status(api_resource.GPU_NODES, {**node, "status": status}, manager=f"agent-{uuid}")
    assert {gpu.uuid for gpu in found.status.gpus} == {"GPU-1", "GPU-2"}
    for resource, name in ((api_resource.JOB_QUEUES, "research"), (api_resource.GPU_NODES, "n1")):
        await client.delete(resource, name)


async def test_kubectl_is_pleasant(control_plane: ControlPlane, client: ApiClient, namespace: str) -> None:
    kubectl = control_plane.kubectl
    kubectl("apply", "-f", "-", given=json.dumps(job(namespace)))
    status = {"phase": "Pending", "ready": "0/1", "reason": "NoRoom", "message": "needs 8 GPUs, 4 are free", "restarts": 0}
    body = {key: job(namespace)[key] for key in ("apiVersion", "kind", "metadata")}
    await client.apply_status(api_resource.TRAINING_JOBS, {**body, "status": status}, manager="s")
    head, line = kubectl("get", "tj", "-n", namespace).splitlines()
    assert head.split() == ["NAME", "PHASE", "READY", "QUEUE", "REASON", "AGE"]
    assert line.split()[:5] == ["mnist", "Pending", "0/1", "default", "NoRoom"]
    wide = kubectl("get", "trainingjob", "-n", namespace, "-o", "wide")
    assert "FRAMEWORK" in wide
    assert "needs 8 GPUs, 4 are free" in wide
    assert "mnist" in kubectl("get", "fairway", "-n", namespace)
    assert "needs 8 GPUs, 4 are free" in kubectl("describe", "tj", "mnist", "-n", namespace)
    kubectl("scale", "tj/mnist", "-n", namespace, "--replicas=2")
    assert (await client.get(api_resource.TRAINING_JOBS, "mnist", namespace)).spec_data()["size"] == 2
    explained = kubectl("explain", "trainingjob.spec.roles.command")
    assert "The program and its arguments; never passed to a shell." in explained
    with pytest.raises(RuntimeError, match=r'unknown field "spec\.comand"'):
        kubectl("apply", "-f", "-", given=json.dumps(job(namespace, "typo", comand="x")))


async def test_an_older_definition_is_upgraded_under_objects(client: ApiClient, namespace: str) -> None:
    older = copy.deepcopy(dict(definition("TrainingJob")))
    spec = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del spec["tensorboard"]
    older["spec"]["versions"][0]["additionalPrinterColumns"].pop()
    await client.apply(api_resource.DEFINITIONS, older, manager="fairway-install")
    try:
        made = await client.apply(api_resource.TRAINING_JOBS, job(namespace), manager="m")
    finally:
        await client.apply(api_resource.DEFINITIONS, definition("TrainingJob"), manager="fairway-install")

    async def known() -> bool:
        try:
            changed = await client.apply(api_resource.TRAINING_JOBS, job(namespace, tensorboard={"dir": "runs"}), manager="m")
        except errors.ApiError as error:
            if "not declared in schema" not in error.message:
                raise
            return False  # the server takes a moment to see the new definition
        return changed.spec_data().get("tensorboard", {}).get("dir") == "runs"

    await until(known)
    assert (await client.get(api_resource.TRAINING_JOBS, "mnist", namespace)).metadata.uid == made.metadata.uid
