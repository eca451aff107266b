import pytest

from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.client.api_path import ApiResource, discovered, discovery_path, place_of, query


def test_paths():
    assert api_resource.PODS.collection() == "/api/v1/pods"
    assert api_resource.PODS.collection("team") == "/api/v1/namespaces/team/pods"
    assert api_resource.PODS.one("a", "team", "binding") == "/api/v1/namespaces/team/pods/a/binding"
    assert api_resource.NODES.one("n", "ignored") == "/api/v1/nodes/n"
    assert (
        api_resource.TRAINING_JOBS.one("m", "team", "status")
        == "/apis/fairway.dev/v1alpha1/namespaces/team/trainingjobs/m/status"
    )
    assert api_resource.TRAINING_JOBS.api_version == "fairway.dev/v1alpha1"
    assert (api_resource.PODS.named("a", "team"), api_resource.NODES.named("n")) == ("Pod team/a", "Node n")


def test_a_name_cannot_lead_elsewhere():
    assert api_resource.PODS.one("../../nodes/n", "team") == "/api/v1/namespaces/team/pods/..%2F..%2Fnodes%2Fn"
    assert api_resource.PODS.one("a?b=c", "t#") == "/api/v1/namespaces/t%23/pods/a%3Fb%3Dc"
    for name, namespace in (("..", "team"), ("a", ".."), (".", "team"), ("", "team"), ("a", "")):
        with pytest.raises(ValueError, match=r"name|namespace"):
            api_resource.PODS.one(name, namespace)


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
        "Workload": ApiResource(dict, "kueue.x-k8s.io", "v1beta2", "workloads", "Workload", True),
        "ClusterQueue": ApiResource(dict, "kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", False),
    }
    assert (discovery_path("v1"), discovery_path("a/v1")) == ("/api/v1", "/apis/a/v1")


def test_the_built_in_kinds_are_found_as_manifests_name_them():
    assert api_resource.BY_KIND["v1", "PersistentVolumeClaim"] is api_resource.CLAIMS
    assert api_resource.BY_KIND["fairway.dev/v1alpha1", "GpuNode"] is api_resource.GPU_NODES
