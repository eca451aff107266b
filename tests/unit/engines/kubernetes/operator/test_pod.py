"""The pod of a task, and how its state is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.operator.installation import DocumentPermissions, FrameworkRuntime, InstallationSettings
from fairway.engines.kubernetes.operator.manifest.input import InputVersion, inputs
from fairway.engines.kubernetes.operator.manifest.pod import FINALIZER, merged, pod
from fairway.engines.kubernetes.operator.pod import name as pod_name
from fairway.engines.kubernetes.operator.pod import policy
from fairway.engines.kubernetes.operator.pod import report as pod_report
from fairway.errors import NotFoundError
from fairway.plan.task_expansion import make_tasks
from fairway.runtime import task_contract
from fairway.runtime.pod import termination_message
from fairway.runtime.pod.pod_order import VARIABLE, PodOrder
from fairway.spec.job import JobSpec
from fairway.state.job import JobKey, JobState, RunEviction, SubmissionOrigin
from fairway.state.phase import TaskPhase
from fairway.state.task import TaskKey

HERE = InstallationSettings(image="fairway:1")
SHARING = InstallationSettings(image="fairway:1", run_volume={"persistentVolumeClaim": {"claimName": "runs"}})
TORCH = FrameworkRuntime("torch:2", env={"PATH": "/venv/bin:/bin"})


def job(workers: int = 2, **more: Any) -> JobState:
    role: dict[str, Any] = {"replicas": {"min": workers, "max": workers}, "command": ["python", "train.py"]}
    role |= {name: more.pop(name) for name in ("resources", "placement", "processes", "limits") if name in more}
    spec = JobSpec.model_validate({"framework": "pytorch", "roles": {"worker": role}, **more})
    return JobState(JobKey("team", "mnist-7"), "mnist", 7, spec, SubmissionOrigin(user="ann"), created=1000.0)


def made(run: JobState, index: int = 0, installation: InstallationSettings = HERE, code: str = "") -> dict[str, Any]:
    tasks = tuple(make_tasks(run, {"worker": run.spec.roles["worker"].replicas.min}, 4.0, 0.0))
    return pod(run, tasks[index], pod_name.topology(run, tasks, "cluster.local"), installation, TORCH, code)


def variables(body: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in body["spec"]["containers"][0]["env"]}


def test_a_pod_has_a_name_of_its_own_at_every_attempt_and_a_host_name_that_stays() -> None:
    run = job()
    first, again = made(run, 1), made(replace(run, attempt=3), 1)
    assert [first["metadata"]["name"], again["metadata"]["name"]] == ["mnist-7-worker-1-r0", "mnist-7-worker-1-r3"]
    assert first["spec"]["hostname"] == again["spec"]["hostname"] == "mnist-7-worker-1"
    assert first["spec"]["subdomain"] == "mnist-7-run"
    assert first["metadata"]["finalizers"] == [FINALIZER]
    assert pod_name.task_key("team", first["metadata"]["labels"]) == TaskKey("team", "mnist-7", "worker", 1, 0)


def test_every_rank_is_told_of_its_peers_by_name() -> None:
    order = PodOrder.decode(variables(made(job(), 1))[VARIABLE])
    (start,) = order.starts
    assert start.argv == ["python", "train.py"]
    assert start.env["MASTER_ADDR"] == "mnist-7-worker-0.mnist-7-run.team.svc.cluster.local"
    assert (start.env["RANK"], start.env["WORLD_SIZE"]) == ("1", "2")
    assert order.checkpoints == start.env["FAIRWAY_CHECKPOINT_DIR"]


def test_several_processes_of_a_pod_have_ranks_of_their_own() -> None:
    order = PodOrder.decode(variables(made(job(processes=2), 1))[VARIABLE])
    assert [start.env["RANK"] for start in order.starts] == ["2", "3"]


def test_the_scheduler_is_told_of_the_gang() -> None:
    run = job(timeout="1h", queue="research")
    gang = annotation.read_gang(made(run)["metadata"]["annotations"])
    assert gang is not None
    assert gang == annotation.GangAnnotation(
        name="mnist-7.a0",
        parts={"worker": annotation.RoleAnnotation(2, 2, 2)},
        queue="research",
        user="ann",
        series="mnist",
        time_limit=3600.0,
        submitted=1000.0,
    )
    assert gang.size == 2


def test_resources_are_asked_for_and_gpus_are_left_to_whoever_gives_them() -> None:
    asked = {"cpu": "2", "memory": "1Gi", "gpu": "1", "other": {"rdma/hca": 1}}
    body = made(job(1, resources=asked, limits={"memory": "2Gi"}))
    assert body["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "2000m", "memory": str(1 << 30), "rdma/hca": "1"},
        "limits": {"rdma/hca": "1", "memory": "2Gi"},
    }


def test_where_the_clusters_own_scheduler_places_ours_is_not_named() -> None:
    theirs = InstallationSettings(image="fairway:1", scheduler="")
    assert "schedulerName" not in made(job(1), installation=theirs)["spec"]


def test_secrets_are_references_and_never_values() -> None:
    given = variables(made(job(secrets=["HF_TOKEN"])))
    assert given["HF_TOKEN"] == {"secretKeyRef": {"name": "fairway-secrets", "key": "HF_TOKEN"}}


def test_code_comes_by_a_step_before_the_task() -> None:
    body = made(job(), code="mnist-7-code")
    (step,) = body["spec"]["initContainers"]
    assert step["image"] == "fairway:1"
    assert "--bundle" in step["command"]
    assert {"name": "bundle", "configMap": {"name": "mnist-7-code"}} in body["spec"]["volumes"]
    assert "--bundle" not in made(job())["spec"]["initContainers"][0]["command"]


def step(body: dict[str, Any], name: str = "code") -> dict[str, Any]:
    return next(one for one in body["spec"]["initContainers"] if one["name"] == name)


def test_code_in_the_blobs_is_fetched_and_code_in_git_cloned() -> None:
    body = made(job(), code="blob:" + "a" * 64)
    assert step(body)["command"][-4:-2] == ["--digest", "a" * 64]
    assert "bundle" not in [volume["name"] for volume in body["spec"]["volumes"]]
    source = {"git": {"url": "https://host/a.git", "ref": "v1"}}
    assert {"--git=https://host/a.git", "--ref=v1"} <= set(step(made(job(code=source)))["command"])
    assert "--git=https://host/a.git" not in step(made(job(code=source), code="mnist-7-code"))["command"]


def test_only_where_pods_share_no_volume_is_anything_carried() -> None:
    alone, together = made(job(outputs={"model": "m"})), made(job(outputs={"model": "m"}), installation=SHARING)
    assert step(alone)["command"][-2:] == ["--checkpoints", "/fairway/run/checkpoints"]
    assert "run" in [mount["name"] for mount in step(alone)["volumeMounts"]]
    assert "--checkpoints" not in step(together)["command"]
    told, other = (PodOrder.decode(variables(body)[VARIABLE]) for body in (alone, together))
    assert (told.carries, told.outputs) == (True, {"model": "/fairway/run/outputs/model"})
    assert (told.starts[0].env.get(task_contract.APART), other.starts[0].env.get(task_contract.APART)) == ("1", None)
    assert (other.carries, other.outputs) == (False, {})
    assert alone["spec"]["terminationGracePeriodSeconds"] == together["spec"]["terminationGracePeriodSeconds"] + 60


def test_requirements_are_made_into_an_environment_in_the_tasks_own_image() -> None:
    wish = {"requirements": "deps/requirements.txt"}
    run = job(environment=wish, env={"PIP_INDEX_URL": "https://index"}, secrets=["PIP_EXTRA_INDEX_URL", "HF_TOKEN"])
    body = made(run)
    makes = step(body, "environment")
    assert makes["image"] == "torch:2"
    assert "--requirements=/fairway/code/deps/requirements.txt" in makes["command"]
    assert [one["name"] for one in makes["env"] if "valueFrom" in one] == ["PIP_EXTRA_INDEX_URL"], "no other secret goes there"
    assert {one["name"]: one.get("value") for one in makes["env"]}["PIP_INDEX_URL"] == "https://index"
    assert {"name": "cache", "emptyDir": {}} in body["spec"]["volumes"]
    (used,) = [mount for mount in body["spec"]["containers"][0]["volumeMounts"] if mount["name"] == "cache"]
    assert used == {"name": "cache", "mountPath": "/fairway/cache", "subPath": "team", "readOnly": True}
    assert PodOrder.decode(variables(body)[VARIABLE]).environment == "/fairway/environment"
    installation = InstallationSettings(image="fairway:1", cache_volume={"persistentVolumeClaim": {"claimName": "cache"}})
    assert {"name": "cache", **installation.cache_volume} in made(run, installation=installation)["spec"]["volumes"]
    assert len(made(job())["spec"]["initContainers"]) == 1


def test_versions_of_the_registry_are_fetched_before_the_task() -> None:
    versions = {
        "model://lenet@2": InputVersion("/v1/given/models/lenet@2"),
        "rows@1": InputVersion("/v1/given/datasets/rows@1", "rows.csv"),
        "far@1": InputVersion(elsewhere="s3://bucket/far"),
        "near@1": InputVersion(elsewhere="/data/near"),
    }

    def find(reference: str) -> InputVersion:
        if reference in versions:
            return versions[reference]
        raise NotFoundError(f"there is no {reference} here", fix="add it")

    data = {"start": "model://lenet@2", "rows": "rows@1", "far": "far@1", "near": "near@1", "none": "none@1"}
    found = inputs(data, DocumentPermissions(host_paths=("/data",)), find)
    assert found.values == {
        "start": "/fairway/fetched/start",
        "rows": "/fairway/fetched/rows/rows.csv",
        "far": "s3://bucket/far",
        "near": "/fairway/data/near",
    }
    assert found.fetched == [
        ("/v1/given/models/lenet@2", "/fairway/fetched/start"),
        ("/v1/given/datasets/rows@1", "/fairway/fetched/rows"),
    ]
    assert [volume["name"] for volume in found.volumes] == ["fetched", "data-near"]
    assert found.refused == ["data.none: there is no none@1 here; add it"]
    assert inputs({"near": "near@1"}, DocumentPermissions(), find).refused, "a reference opens no folder that policy keeps closed"


def test_what_the_document_adds_is_merged_last() -> None:
    extra = {"tolerations": [{"key": "gpu"}], "containers": [{"name": "task", "securityContext": {"runAsUser": 1000}}]}
    body = made(job(kubernetes={"pod": extra}))
    (container,) = body["spec"]["containers"]
    assert container["securityContext"]["runAsUser"] == 1000
    assert container["image"] == "torch:2"
    assert body["spec"]["tolerations"] == [{"key": "gpu"}]
    assert merged({"a": [1], "b": {"c": 1}, "d": 1}, {"a": [2], "b": {"e": 2}, "d": 3}) == {
        "a": [1, 2],
        "b": {"c": 1, "e": 2},
        "d": 3,
    }


def test_tolerations_are_written_the_clusters_way() -> None:
    wish = {"tolerations": ["gpu", "team=nlp", "team=nlp:NoSchedule"]}
    assert made(job(placement=wish))["spec"]["tolerations"] == [
        {"key": "gpu", "operator": "Exists"},
        {"key": "team", "operator": "Equal", "value": "nlp"},
        {"key": "team", "operator": "Equal", "value": "nlp", "effect": "NoSchedule"},
    ]
    assert made(job(placement={"tolerations": ["*", "a"]}))["spec"]["tolerations"] == [{"operator": "Exists"}]


def test_inputs_are_mounted_where_they_may_be_and_refused_with_the_fix_where_not() -> None:
    allowed = DocumentPermissions(host_paths=("/data",))
    given = {"a": "/data/mnist", "b": "pvc://claim/x/y", "c": "s3://bucket/x", "d": "/etc", "e": "../data"}
    found = inputs(given, allowed)
    assert found.values == {"a": "/fairway/data/a", "b": "/fairway/data/b/x/y", "c": "s3://bucket/x"}
    assert [volume["name"] for volume in found.volumes] == [mount["name"] for mount in found.mounts] == ["data-a", "data-b"]
    assert all(mount["readOnly"] for mount in found.mounts)
    assert "data.d: '/etc' is not allowed" in found.refused[0]
    assert "pvc://CLAIM/PATH" in found.refused[1]
    here = InstallationSettings(image="fairway:1", allowed=allowed)
    body = made(job(data={"train": "/data/mnist"}), installation=here)
    order = PodOrder.decode(variables(body)[VARIABLE])
    assert order.starts[0].env["FAIRWAY_DATA_TRAIN"] == "/fairway/data/train"


def test_names_that_would_be_too_long_are_refused_before_anything_is_made() -> None:
    assert pod_name.too_long(job()) == ""
    assert "too long" in pod_name.too_long(replace(job(), key=JobKey("team", "m" * 52 + "-1")))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"volumes": [{"name": "x", "hostPath": {"path": "/etc"}}]}, "hostPath: '/etc' is not allowed"),
        ({"volumes": [{"name": "x", "hostPath": {"path": "/data/../etc"}}]}, "is not allowed"),
        ({"volumes": [{"name": "x", "hostPath": {"path": "/database"}}]}, "is not allowed"),
        ({"hostNetwork": True}, "hostNetwork"),
        ({"hostPID": True}, "never allowed"),
        ({"serviceAccountName": "admin"}, "'admin' is not allowed"),
        ({"serviceAccount": "admin"}, "'admin' is not allowed"),
        ({"containers": [{"name": "task", "securityContext": {"privileged": True}}]}, "never allowed"),
        ({"initContainers": [{"name": "i", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]}, "'SYS_ADMIN'"),
        ({"containers": [{"name": "task", "ports": [{"hostPort": 80}]}]}, "hostPort"),
    ],
)
def test_what_no_administrator_allowed_is_refused(spec: dict[str, Any], words: str) -> None:
    (refusal,) = policy.refusals(spec, DocumentPermissions(host_paths=("/data",)))
    assert words in refusal


def test_what_was_allowed_is() -> None:
    allowed = DocumentPermissions(
        host_paths=("/data",), host_network=True, service_accounts=("default", "train"), capabilities=("IPC_LOCK",)
    )
    spec = {
        "hostNetwork": True,
        "serviceAccountName": "train",
        "volumes": [{"name": "x", "hostPath": {"path": "/data/imagenet"}}, {"name": "y", "emptyDir": {}}],
        "containers": [{"name": "task", "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}],
    }
    assert policy.refusals(spec, allowed) == []
    assert policy.refusals({}, DocumentPermissions()) == []


KEY = TaskKey("team", "mnist-7", "worker", 0, 0)


def seen(**given: Any) -> Pod:
    plain: dict[str, Any] = {"metadata": {"name": "mnist-7-worker-0-r0", "annotations": given.pop("annotations", {})}}
    node = given.pop("node", "")
    return msgspec.convert({**plain, "spec": {"nodeName": node}, "status": given}, Pod)


def ended(code: int, message: str = "", reason: str = "Error", **more: Any) -> dict[str, Any]:
    state = {"exitCode": code, "message": message, "reason": reason, "startedAt": "2026-01-01T00:00:00Z"}
    return {"name": "task", "state": {"terminated": {**state, "finishedAt": "2026-01-01T00:01:00Z", **more}}}


def test_a_pod_that_waits_says_why() -> None:
    waits = seen(phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "message": "needs 4 GPUs"}])
    report = pod_report.report(KEY, waits)
    assert (report.phase, report.message, report.node) == (TaskPhase.PLACED, "needs 4 GPUs", None)


def test_a_pod_that_cannot_get_its_image_says_so() -> None:
    stuck = {"name": "task", "image": "nope:1", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}
    report = pod_report.report(KEY, seen(phase="Pending", node="a", containerStatuses=[stuck]))
    assert (report.phase, report.message, report.node) == (TaskPhase.STARTING, "ImagePullBackOff: not found", "a")


def test_a_pod_that_runs_has_a_start_a_node_and_devices() -> None:
    running = {"name": "task", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    report = pod_report.report(
        KEY, seen(phase="Running", node="a", containerStatuses=[running], annotations={annotation.GPU_IDS: "GPU-1,GPU-2"})
    )
    assert (report.phase, report.started, report.devices) == (TaskPhase.RUNNING, 1767225600.0, ("GPU-1", "GPU-2"))


def test_an_end_is_read_from_what_our_first_process_left() -> None:
    record = termination_message.encode("worker-0", 1, None, 11)
    report = pod_report.report(KEY, seen(phase="Failed", node="a", containerStatuses=[ended(139, record)]))
    assert report.phase is TaskPhase.FAILED
    assert report.exit is not None
    assert (report.exit.code, report.exit.signal, report.exit.rank, report.exit.by_us) == (None, 11, 1, False)
    assert report.finished == 1767225660.0


def test_an_end_without_our_words_is_read_from_the_exit_code() -> None:
    killed = pod_report.exit_of(seen(phase="Failed", node="a", containerStatuses=[ended(137, reason="OOMKilled")]))
    assert (killed.code, killed.signal, killed.out_of_memory) == (None, 9, True)
    plain = pod_report.exit_of(seen(phase="Failed", node="a", containerStatuses=[ended(3, "boom")]))
    assert (plain.code, plain.signal, plain.tail) == (3, None, "boom")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("OutOfcpu", "had no room for it when it arrived"),
        ("UnexpectedAdmissionError", "could not allocate the promised devices"),
        ("Evicted", "ran short"),
        ("NodeLost", "was lost"),
    ],
)
def test_an_end_from_outside_is_no_failure_of_the_run(reason: str, words: str) -> None:
    assert words in pod_report.exit_of(seen(phase="Failed", node="a", reason=reason)).disrupted


def test_a_disruption_told_by_a_condition_counts_too() -> None:
    told = [
        {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "taint manager: deleting"}
    ]
    assert pod_report.disruption(seen(phase="Failed", node="a", conditions=told)) == "taint manager: deleting"


def test_a_node_that_came_back_without_the_container_is_no_failure_of_the_run() -> None:
    pod = seen(phase="Failed", node="a", containerStatuses=[ended(137, reason="ContainerStatusUnknown")])
    assert pod_report.exit_of(pod).disrupted == "its node a came back without it"


def test_who_ends_of_a_deletion_by_somebody_else_has_not_failed() -> None:
    def deleted(at: str) -> Pod:
        plain = msgspec.to_builtins(seen(phase="Failed", node="a", containerStatuses=[ended(1)]))
        plain["metadata"] |= {"deletionTimestamp": at, "deletionGracePeriodSeconds": 30}
        return msgspec.convert(plain, Pod)

    assert pod_report.disruption(deleted("2026-01-01T00:01:20Z")) == "its pod was deleted by a user or another program"
    # The pod had ended a minute before its deletion was requested.
    assert pod_report.disruption(deleted("2026-01-01T00:02:30Z")) == ""


def test_who_was_ended_by_us_is_stopped_whatever_its_code_says() -> None:
    report = pod_report.report(
        KEY, seen(phase="Failed", node="a", containerStatuses=[ended(143)], annotations={annotation.DELETED_FOR: "GangRestart"})
    )
    assert report.phase is TaskPhase.STOPPED
    assert report.exit is not None
    assert report.exit.by_us


@pytest.mark.parametrize(("at", "phase"), [("00:01:20", TaskPhase.STOPPED), ("00:02:30", TaskPhase.SUCCEEDED)])
def test_who_saves_on_request_and_exits_with_0_is_stopped_and_not_done(at: str, phase: TaskPhase) -> None:
    pod = seen(phase="Succeeded", node="a", containerStatuses=[ended(0)], annotations={annotation.DELETED_FOR: "priority"})
    plain = msgspec.to_builtins(pod)
    plain["metadata"] |= {"deletionTimestamp": f"2026-01-01T{at}Z", "deletionGracePeriodSeconds": 30}
    assert pod_report.report(KEY, msgspec.convert(plain, Pod)).phase is phase


def test_code_that_could_not_be_brought_is_said_in_words() -> None:
    failed = {"name": "code", "state": {"terminated": {"exitCode": 1, "message": "x\nReadError: not a gzip file\n"}}}
    report = pod_report.report(KEY, seen(phase="Failed", node="a", initContainerStatuses=[failed]))
    assert report.message == "code or data could not be brought into the pod: ReadError: not a gzip file"


def test_a_mark_to_leave_is_read_and_nonsense_is_not() -> None:
    leave = RunEviction("grow", "room for 3", 5.0, {"worker": 3})
    assert annotation.read_leave({annotation.LEAVE: annotation.write_leave(leave)}) == leave
    assert annotation.read_leave({annotation.LEAVE: "soon"}) is None
    assert annotation.read_leave({}) is None


@pytest.mark.parametrize(
    "noted", [{annotation.PARTS: "[]"}, {annotation.PARTS: "{"}, {annotation.PARTS: '{"w": {"x": 1}}'}, {annotation.SAVED: "x"}]
)
def test_marks_that_are_none_are_refused_with_their_name(noted: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"annotation fairway.dev/"):
        annotation.read_gang({annotation.GANG: "g", **noted})


def test_a_pod_that_is_deleted_before_it_has_a_place_is_over() -> None:
    deleted = {"name": "mnist-7-worker-0-r0", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    report = pod_report.report(KEY, msgspec.convert({"metadata": deleted, "status": {"phase": "Pending"}}, Pod))
    assert report.phase is TaskPhase.FAILED
    assert report.exit is not None
    assert report.exit.disrupted == "its pod was deleted by a user or another program"


def test_a_node_whose_clock_is_an_hour_behind_does_not_make_a_deletion_a_failure() -> None:
    metadata = {"name": "x", "deletionTimestamp": "2026-01-01T01:00:30Z", "deletionGracePeriodSeconds": 30}
    status = {"phase": "Failed", "containerStatuses": [ended(143)]}
    pod = msgspec.convert({"metadata": metadata, "spec": {"nodeName": "a"}, "status": status}, Pod)
    assert pod_report.disruption(pod) == "its pod was deleted by a user or another program"
