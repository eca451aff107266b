"""What documents may not request of a cluster: every way out of a pod, a namespace or the queue is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.engines.kubernetes.operator.installation import DocumentPermissions, FrameworkRuntime, InstallationSettings
from fairway.engines.kubernetes.operator.manifest.input import inputs, nowhere
from fairway.engines.kubernetes.operator.pod import policy

HOSTILE: dict[str, dict[str, Any]] = {
    "processes of the node": {"hostPID": True},
    "memory of the node": {"hostIPC": True},
    "users of the node": {"hostUsers": True},
    "the network of the node": {"hostNetwork": True},
    "a port of the node": {"containers": [{"name": "task", "ports": [{"containerPort": 80, "hostPort": 80}]}]},
    "a folder of the node": {"volumes": [{"name": "x", "hostPath": {"path": "/etc"}}]},
    "a folder beside an allowed one": {"volumes": [{"name": "x", "hostPath": {"path": "/data/../etc"}}]},
    "a folder without a path": {"volumes": [{"name": "x", "hostPath": {}}]},
    "a program that the node runs": {"volumes": [{"name": "x", "gitRepo": {"repository": "https://x"}}]},
    "a driver of the node": {"volumes": [{"name": "x", "csi": {"driver": "secrets-store.csi.k8s.io"}}]},
    "an older driver of the node": {"volumes": [{"name": "x", "flexVolume": {"driver": "x/y"}}]},
    "somebody's file server": {"volumes": [{"name": "x", "nfs": {"server": "files", "path": "/"}}]},
    "somebody's disk": {"volumes": [{"name": "x", "iscsi": {"targetPortal": "a", "iqn": "b", "lun": 0}}]},
    "a claim that is made for it": {"volumes": [{"name": "x", "ephemeral": {"volumeClaimTemplate": {}}}]},
    "an image as a volume": {"volumes": [{"name": "x", "image": {"reference": "x"}}]},
    "a token of the account": {"volumes": [{"name": "x", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
    "a volume that is ours": {"volumes": [{"name": "run", "emptyDir": {}}]},
    "a volume that is nothing": {"volumes": [{"name": "x"}]},
    "a volume that is taken back": {"volumes": [{"name": "x", "emptyDir": None}]},
    "runs of everybody": {
        "containers": [{"name": "task", "volumeMounts": [{"name": "run", "mountPath": "/all", "subPath": ""}]}]
    },
    "runs of everybody, in another container": {
        "initContainers": [{"name": "i", "image": "x", "volumeMounts": [{"name": "run", "mountPath": "/all"}]}]
    },
    "what the administrator mounted, to write": {
        "containers": [{"name": "task", "volumeMounts": [{"name": "venv", "mountPath": "/venv", "readOnly": False}]}]
    },
    "a node of its own": {"nodeName": "control-plane"},
    "another scheduler": {"schedulerName": "default-scheduler"},
    "another class of priority": {"priorityClassName": "system-node-critical"},
    "a priority by number": {"priority": 2000001000},
    "another runtime": {"runtimeClassName": "runc-privileged"},
    "another account": {"serviceAccountName": "fairway-operator"},
    "another account by its old name": {"serviceAccountName": "default", "serviceAccount": "fairway-operator"},
    "a container beside": {"ephemeralContainers": [{"name": "x", "image": "y"}]},
    "devices by claims": {"resourceClaims": [{"name": "gpu"}]},
    "a privileged container": {"containers": [{"name": "task", "securityContext": {"privileged": True}}]},
    "a privileged first container": {"initContainers": [{"name": "i", "securityContext": {"privileged": True}}]},
    "more privileges": {"containers": [{"name": "task", "securityContext": {"allowPrivilegeEscalation": True}}]},
    "capabilities": {"containers": [{"name": "task", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]},
    "system calls of all kinds": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
    "no profile": {"containers": [{"name": "task", "securityContext": {"appArmorProfile": {"type": "Unconfined"}}}]},
    "another type for SELinux": {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}},
    "settings of the kernel": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
    "all of /proc": {"containers": [{"name": "task", "securityContext": {"procMount": "Unmasked"}}]},
    "a process of Windows": {"securityContext": {"windowsOptions": {"hostProcess": True}}},
    "a question to another host": {
        "containers": [{"name": "task", "livenessProbe": {"httpGet": {"host": "10.0.0.1", "port": 80}}}]
    },
    "a last word to another host": {
        "containers": [{"name": "task", "lifecycle": {"preStop": {"tcpSocket": {"host": "169.254.169.254", "port": 80}}}}]
    },
    "the account's token": {"automountServiceAccountToken": True},
    "the account's token, by nothing": {"automountServiceAccountToken": None},
    "another scheduler, by nothing": {"schedulerName": None},
    "another scheduler, by an empty name": {"schedulerName": ""},
    "environments of others": {"volumes": [{"name": "cache", "persistentVolumeClaim": {"claimName": "mine"}}]},
    "an environment of its own": {"volumes": [{"name": "environment", "emptyDir": {}}]},
    "what was fetched": {"volumes": [{"name": "fetched", "emptyDir": {}}]},
    "an input": {"volumes": [{"name": "data-rows", "persistentVolumeClaim": {"claimName": "mine"}}]},
    **{
        f"a mount at {path}": {
            "volumes": [{"name": "x", "emptyDir": {}}],
            kind: [{"name": name, "volumeMounts": [{"name": "x", "mountPath": path}]}],
        }
        for path in (
            "/",
            "/fairway",
            "/fairway/inject",
            "fairway/code",
            "/x/../fairway/run",
            "/dev/shm",
            "/dev",
            "//fairway/data/rows/",
        )
        for kind, name in (("containers", "task"), ("initContainers", "code"))
    },
    "a device at our place": {
        "volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "mine"}}],
        "containers": [{"name": "task", "volumeDevices": [{"name": "x", "devicePath": "/fairway/run"}]}],
    },
    "no list of volumes": {"volumes": {"name": "x"}},
    "no list of containers": {"containers": None},
    "no list of variables": {"containers": [{"name": "task", "env": None}]},
    "a container that is a word": {"containers": ["task"]},
    "a volume that is a word": {"volumes": ["run"]},
}


@pytest.mark.parametrize("wish", HOSTILE)
def test_what_no_administrator_allowed_is_refused_in_words(wish: str) -> None:
    found = policy.refusals(HOSTILE[wish], DocumentPermissions(host_paths=("/data",)))
    assert found, wish
    assert all(words.startswith("kubernetes.pod.") and ";" in words for words in found)


ORDINARY: dict[str, Any] = {
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"disk": "fast"},
    "securityContext": {"runAsUser": 1000, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    "volumes": [
        {"name": "scratch", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "mine"}},
        {"name": "mixed", "projected": {"sources": [{"configMap": {"name": "a"}}, {"secret": {"name": "b"}}]}},
    ],
    "containers": [
        {
            "name": "task",
            "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
            "securityContext": {"capabilities": {"drop": ["ALL"]}},
        }
    ],
}


def test_what_is_of_the_namespace_itself_may_be_asked_for() -> None:
    assert policy.refusals(ORDINARY, DocumentPermissions()) == []
    assert policy.refusals({}, DocumentPermissions()) == []


def test_an_administrator_may_allow_more() -> None:
    allowed = DocumentPermissions(
        volumes=("nfs", "serviceAccountToken"), priority_classes=("urgent",), runtime_classes=("gvisor",), host_network=True
    )
    spec = {
        "hostNetwork": True,
        "priorityClassName": "urgent",
        "runtimeClassName": "gvisor",
        "volumes": [
            {"name": "x", "nfs": {"server": "files", "path": "/"}},
            {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        ],
    }
    assert policy.refusals(spec, allowed) == []


GIVEN = policy.taken(
    InstallationSettings(
        image="f",
        run_volume={"persistentVolumeClaim": {"claimName": "runs"}},
        cache_volume={"nfs": {"server": "files", "path": "/envs"}},
        record={"hostPath": {"path": "/srv/fairway"}},
    ),
    FrameworkRuntime(
        "torch:2", volumes=({"name": "venv", "hostPath": {"path": "/opt"}},), mounts=({"name": "venv", "mountPath": "/venv"},)
    ),
)
MEANS = DocumentPermissions(volumes=("nfs",), host_paths=("/srv",))


@pytest.mark.parametrize(
    "volume",
    [
        {"name": "x", "persistentVolumeClaim": {"claimName": "runs"}},
        {"name": "x", "persistentVolumeClaim": {"claimName": "runs", "readOnly": True}},
        {"name": "x", "nfs": {"server": "files", "path": "/"}},
        {"name": "x", "hostPath": {"path": "/srv"}},
        {"name": "x", "hostPath": {"path": "/srv/fairway/"}},
        {"name": "x", "hostPath": {"path": "/srv//fairway/runs", "type": "Directory"}},
        {"name": "venv", "emptyDir": {}},
    ],
)
def test_what_the_installation_shares_is_not_had_under_another_name(volume: dict[str, Any]) -> None:
    (refusal,) = policy.refusals({"volumes": [volume]}, MEANS, GIVEN)
    assert refusal.startswith(f"kubernetes.pod.volumes[{volume['name']}]")
    assert ";" in refusal


def test_what_the_installation_does_not_share_may_be_had() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "mine"}},
        {"name": "b", "nfs": {"server": "other", "path": "/"}},
        {"name": "c", "hostPath": {"path": "/srv/data"}},
        {"name": "data", "emptyDir": {}},
    ]
    mounts = [{"name": volume["name"], "mountPath": f"/mine/{volume['name']}"} for volume in volumes]
    spec = {"volumes": volumes, "containers": [{"name": "task", "volumeMounts": mounts}], "automountServiceAccountToken": False}
    assert policy.refusals(spec, MEANS, GIVEN) == []
    over = {
        "volumes": volumes[-1:],
        "containers": [{"name": "task", "volumeMounts": [{"name": "data", "mountPath": "/venv/lib"}]}],
    }
    (refusal,) = policy.refusals(over, MEANS, GIVEN)
    assert "'/venv/lib' covers /venv, which Fairway fills" in refusal


def test_an_input_does_not_reach_the_runs_of_others() -> None:
    found = inputs({"all": "pvc://runs/other", "mine": "pvc://rows", "host": "/srv/fairway/home"}, MEANS, nowhere, GIVEN)
    assert [words.split(":")[0] for words in found.refused] == ["data.all", "data.host"]


def test_an_administrator_may_let_documents_have_tokens() -> None:
    allowed = DocumentPermissions(volumes=("serviceAccountToken",))
    assert policy.refusals({"automountServiceAccountToken": True}, allowed) == []


words = st.sampled_from(["", "name", "hostPath", "env", "volumeMounts", "securityContext", "projected", "sources", "lifecycle"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
places = st.sampled_from(
    ["volumes", "containers", "initContainers", "securityContext", "serviceAccountName", "hostPID", "nodeName", "tolerations"]
)


@given(st.dictionaries(places, anything, max_size=4))
def test_nothing_that_a_document_says_makes_it_fail(spec: dict[str, Any]) -> None:
    assert isinstance(policy.refusals(spec, DocumentPermissions()), list)
