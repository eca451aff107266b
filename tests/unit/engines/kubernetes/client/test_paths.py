import pytest

from fairway.engines.kubernetes.client import kinds
from fairway.engines.kubernetes.client.paths import Resource, discovered, discovery_path, place_of, query


def test_paths():
    assert kinds.PODS.collection() == "/api/v1/pods"
    assert kinds.PODS.collection("team") == "/api/v1/namespaces/team/pods"
    assert kinds.PODS.one("a", "team", "binding") == "/api/v1/namespaces/team/pods/a/binding"
    assert kinds.NODES.one("n", "ignored") == "/api/v1/nodes/n"
    assert kinds.TRAINING_JOBS.one("m", "team", "status") == "/apis/fairway.dev/v1alpha1/namespaces/team/trainingjobs/m/status"
    assert kinds.TRAINING_JOBS.api_version == "fairway.dev/v1alpha1"
    assert (kinds.PODS.named("a", "team"), kinds.NODES.named("n")) == ("Pod team/a", "Node n")


def test_a_name_cannot_lead_elsewhere():
    assert kinds.PODS.one("../../nodes/n", "team") == "/api/v1/namespaces/team/pods/..%2F..%2Fnodes%2Fn"
    assert kinds.PODS.one("a?b=c", "t#") == "/api/v1/namespaces/t%23/pods/a%3Fb%3Dc"
    for name, namespace in (("..", "team"), ("a", ".."), (".", "team"), ("", "team"), ("a", "")):
        with pytest.raises(ValueError, match=r"name|namespace"):
            kinds.PODS.one(name, namespace)


def test_queries():
    assert query() == ""
    assert query(a="", b=None, c=False) == ""
    assert query(labelSelector="a=b,c", watch=True, limit=0) == "?labelSelector=a%3Db%2Cc&watch=true&limit=0"
    assert query(limit=5, **{"continue": "x"}) == "?limit=5&continue=x"


def test_what_a_manifest_says_of_itself():
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "t"}}
    assert place_of(manifest) == ("v1", "Pod", "t", "a")
    for missing in ("apiVersion", "kind", "metadata"):
        with pytest.raises(ValueError, match=missing):
            place_of({key: value for key, value in manifest.items() if key != missing})


def test_discovery():
    listed = {
        "resources": [
            {"name": "workloads", "kind": "Workload", "namespaced": True},
            {"name": "workloads/status", "kind": "Workload", "namespaced": True},
            {"name": "clusterqueues", "kind": "ClusterQueue", "namespaced": False},
        ]
    }
    found = discovered("kueue.x-k8s.io/v1beta2", listed)
    assert found == {
        "Workload": Resource(dict, "kueue.x-k8s.io", "v1beta2", "workloads", "Workload", True),
        "ClusterQueue": Resource(dict, "kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", False),
    }
    assert (discovery_path("v1"), discovery_path("a/v1")) == ("/api/v1", "/apis/a/v1")


def test_the_built_in_kinds_are_found_as_manifests_name_them():
    assert kinds.BY_KIND["v1", "PersistentVolumeClaim"] is kinds.CLAIMS
    assert kinds.BY_KIND["fairway.dev/v1alpha1", "GpuNode"] is kinds.GPU_NODES
