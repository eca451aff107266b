"""In every pod of a run, the volumes are protected and the containers confined, whatever the document adds."""

from __future__ import annotations

import itertools
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairway.engines.kubernetes.operator.installation import (
    ContainerConfinement,
    DocumentPermissions,
    FrameworkRuntime,
    InstallationSettings,
)
from fairway.engines.kubernetes.operator.manifest import tensorboard
from fairway.engines.kubernetes.operator.manifest.input import InputVersion
from fairway.engines.kubernetes.operator.manifest.pod import pod
from fairway.engines.kubernetes.operator.manifest.security_context import confined
from fairway.engines.kubernetes.operator.pod import name as pod_name
from fairway.engines.kubernetes.operator.pod import policy
from fairway.engines.kubernetes.operator.unpack import open_to_task
from fairway.plan.task_expansion import make_tasks
from fairway.spec.job import JobSpec
from fairway.state.job import JobKey, JobState

CLAIM = {"persistentVolumeClaim": {"claimName": "runs"}}
DROPPED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
DATA = {"claim": "pvc://rows/a", "folder": "/data/rows", "version": "rows@2", "model": "model://m@1", "uri": "s3://bucket"}


def run(**spec: Any) -> JobState:
    role = {"replicas": {"min": 2, "max": 2}, "command": ["python", "train.py"]}
    return JobState(JobKey("team", "mnist-7"), "mnist", 7, JobSpec.model_validate({"roles": {"worker": role}, **spec}))


def rendered(job: JobState, installation: InstallationSettings, code: str = "") -> list[dict[str, Any]]:
    tasks = tuple(make_tasks(job, {"worker": 2}, 4.0, 0.0))
    topology = pod_name.topology(job, tasks, "cluster.local")
    find = lambda _reference: InputVersion("/v1/given/datasets/rows@2")  # noqa: E731
    return [pod(job, task, topology, installation, FrameworkRuntime("torch:2"), code, find) for task in tasks]


def variants() -> list[tuple[InstallationSettings, dict[str, Any]]]:
    """Return every combination of the choices that change the content of a pod."""
    found = []
    choices = itertools.product(
        ({}, {"run_volume": CLAIM}),
        ({}, {"cache_volume": CLAIM}),
        ("", "code-map", "blob:" + "0" * 64),
        ({}, {"environment": {"requirements": "requirements.txt"}}),
        ({}, {"data": DATA}),
        ({}, {"framework": "mpi"}, {"kubernetes": {"network": {"host": True, "rdma": True}}}, {"outputs": {"model": "m"}}),
    )
    for runs, cache, code, environment, data, more in choices:
        installation = InstallationSettings(image="f:1", allowed=DocumentPermissions(host_paths=("/data",)), **runs, **cache)
        for body in rendered(run(**environment, **data, **more), installation, code):
            found.append((installation, body))
    board = tensorboard.deployment(
        JobKey("team", "m-1"), run().spec, InstallationSettings(image="f", run_volume=CLAIM), FrameworkRuntime("t"), {}
    )
    return [*found, (InstallationSettings(image="f"), {"spec": board["spec"]["template"]["spec"]})]


def test_every_volume_that_a_pod_gets_is_protected_and_no_name_is_protected_for_nothing() -> None:
    names = {volume["name"] for _, body in variants() for volume in body["spec"]["volumes"]}
    inputs = {name for name in names if name.startswith(policy.OURS_BEGIN)}
    assert inputs == {"data-claim", "data-folder"}
    assert names - inputs <= policy.OURS
    # Earlier versions mounted `tmp` in every pod; the name stays reserved.
    assert policy.OURS - names == {"tmp"}


def test_every_place_that_fairway_fills_is_protected() -> None:
    paths = {
        mount["mountPath"]
        for _, body in variants()
        for kind in ("containers", "initContainers")
        for container in body["spec"].get(kind, ())
        for mount in container["volumeMounts"]
    }
    assert len(paths) > 8
    for path in paths:
        spec = {"volumes": [{"name": "x", "emptyDir": {}}]}
        mount = {"name": "task", "volumeMounts": [{"name": "x", "mountPath": path}]}
        assert policy.refusals({**spec, "containers": [mount]}, DocumentPermissions()), path


def test_every_container_of_every_pod_is_confined() -> None:
    for _, body in variants():
        spec = body["spec"]
        assert spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
        assert spec["automountServiceAccountToken"] is False
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            context = container["securityContext"]
            locks = context["capabilities"].get("add") == ["IPC_LOCK"]
            assert not locks or container["name"] == "task", "only where RDMA is asked for"
            assert {**context, "capabilities": {"drop": context["capabilities"]["drop"]}} == DROPPED
            assert "runAsNonRoot" not in context, "images of frameworks run as root"


@pytest.mark.parametrize(
    "extra",
    [
        {"securityContext": None},
        {"securityContext": {"seccompProfile": None}},
        {"containers": [{"name": "task", "securityContext": None}]},
        {"containers": [{"name": "task", "securityContext": {"capabilities": None, "allowPrivilegeEscalation": None}}]},
        {"containers": [{"name": "task", "securityContext": {"capabilities": {"drop": []}}}]},
        {"containers": [{"name": "beside", "image": "x"}]},
        {"initContainers": [{"name": "beside", "image": "x", "restartPolicy": "Always"}]},
    ],
)
def test_no_document_takes_it_off(extra: dict[str, Any]) -> None:
    assert policy.refusals(extra, DocumentPermissions()) == []
    for body in rendered(run(kubernetes={"pod": extra}), InstallationSettings(image="f")):
        assert body["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*body["spec"]["initContainers"], *body["spec"]["containers"]):
            assert container["securityContext"] == DROPPED


def test_a_document_may_ask_for_less_and_for_what_is_allowed() -> None:
    extra = {
        "securityContext": {"runAsUser": 1000, "fsGroup": 1000, "seccompProfile": {"type": "Localhost", "localhostProfile": "p"}},
        "containers": [
            {"name": "task", "securityContext": {"readOnlyRootFilesystem": True, "capabilities": {"add": ["IPC_LOCK"]}}}
        ],
    }
    assert policy.refusals(extra, DocumentPermissions(capabilities=("IPC_LOCK",))) == []
    body, _ = rendered(run(kubernetes={"pod": extra}), InstallationSettings(image="f"))
    assert body["spec"]["securityContext"] == extra["securityContext"]
    (task,) = body["spec"]["containers"]
    assert task["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]},
    }


def test_an_administrator_may_loosen_it() -> None:
    spec = {"containers": [{"name": "task"}]}
    manifest = confined(spec, ContainerConfinement(capabilities=("CHOWN", "SETUID")))
    assert manifest["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN", "SETUID"]}
    assert confined(spec, ContainerConfinement(seccomp=False, privilege_escalation=True, capabilities=("ALL",))) == spec
    text = b'{"image": "f", "confinement": {"seccomp": false, "capabilities": ["SETUID"]}}'
    assert msgspec.json.decode(text, type=InstallationSettings).confinement == ContainerConfinement(
        seccomp=False, capabilities=("SETUID",)
    )


def test_what_a_step_brings_may_be_changed_by_the_task_whoever_it_runs_as(tmp_path: Path) -> None:
    """Root without capabilities can write only to its own files and to files that are writable for all users."""
    folder = tmp_path / "code"
    (folder / "inner").mkdir(parents=True, mode=0o700)
    script, secret, outside = folder / "run.sh", folder / "inner" / "key", tmp_path / "outside"
    for path, mode in ((script, 0o755), (secret, 0o600), (outside, 0o600)):
        path.write_text("x")
        path.chmod(mode)
    (folder / "link").symlink_to(outside)
    open_to_task(folder)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "inner", script, secret, outside)}
    assert modes == {"code": 0o777, "inner": 0o777, "run.sh": 0o777, "key": 0o666, "outside": 0o600}
