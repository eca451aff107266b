"""The TensorBoard of a run: its pod, its input, and its address."""

from __future__ import annotations

from typing import Any

import pytest

from fairway.engines.kubernetes.operator.installation import FrameworkRuntime, InstallationSettings
from fairway.engines.kubernetes.operator.manifest import tensorboard
from fairway.spec.job import JobSpec
from fairway.state.job import JobKey

RUN = JobKey("team", "mnist-7")
OWNER = {"kind": "TrainingJob", "name": "mnist-7", "uid": "u"}
SHARED = {"persistentVolumeClaim": {"claimName": "runs"}}


def spec(**more: Any) -> JobSpec:
    return JobSpec.model_validate({"framework": "pytorch", "roles": {"worker": {"command": ["a"]}}, **more})


def test_it_reads_the_runs_own_folder_and_can_change_nothing() -> None:
    here = InstallationSettings(image="fairway:1", run_volume=SHARED)
    manifest = tensorboard.deployment(RUN, spec(), here, FrameworkRuntime("tb:2", env={"A": "B"}), OWNER)
    inside = manifest["spec"]["template"]["spec"]
    (container,) = inside["containers"]
    assert container["volumeMounts"] == [
        {"name": "run", "mountPath": "/fairway/run", "subPath": "team/mnist-7", "readOnly": True}
    ]
    assert inside["volumes"] == [{"name": "run", **SHARED}]
    assert container["command"][:5] == ["python3", "-m", "tensorboard.main", "--logdir", "/fairway/run/tensorboard"]
    assert (container["image"], container["env"]) == ("tb:2", [{"name": "A", "value": "B"}])
    assert inside["automountServiceAccountToken"] is False
    assert manifest["metadata"]["ownerReferences"] == [OWNER], "it goes with its run's object"


def test_its_service_finds_it_and_nothing_of_the_run() -> None:
    here = InstallationSettings(image="fairway:1")
    manifest = tensorboard.deployment(RUN, spec(), here, FrameworkRuntime("tb:2"), OWNER)
    found = tensorboard.service(RUN, OWNER)
    assert (
        found["spec"]["selector"] == manifest["spec"]["template"]["metadata"]["labels"] == {"fairway.dev/tensorboard": "mnist-7"}
    )
    assert tensorboard.address(RUN, "cluster.local") == "http://mnist-7-tensorboard.team.svc.cluster.local:6006"


@pytest.mark.parametrize(
    ("runtimes", "image", "expected"),
    [
        ({"tensorboard": FrameworkRuntime("tb:2"), "default": FrameworkRuntime("all:1")}, "own:1", "tb:2"),
        ({"default": FrameworkRuntime("all:1")}, "own:1", "own:1"),
        ({"pytorch": FrameworkRuntime("torch:2"), "default": FrameworkRuntime("all:1")}, "", "torch:2"),
        ({}, "", None),
    ],
)
def test_the_administrators_line_comes_first_then_what_the_run_runs_in(
    runtimes: dict[str, FrameworkRuntime], image: str, expected: str | None
) -> None:
    runtime = tensorboard.runtime_for(
        spec(environment={"image": image}), InstallationSettings(image="fairway:1", runtimes=runtimes)
    )
    assert (runtime.image if runtime else None) == expected


def test_a_folder_of_the_documents_own_is_read_where_it_is_absolute() -> None:
    here = InstallationSettings(image="fairway:1")
    job_spec = spec(tensorboard={"dir": "/fairway/run/shared/events"})
    (container,) = tensorboard.deployment(RUN, job_spec, here, FrameworkRuntime("x"), OWNER)["spec"]["template"]["spec"][
        "containers"
    ]
    assert "/fairway/run/shared/events" in container["command"]
