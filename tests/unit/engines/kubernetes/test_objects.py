import msgspec

from fairway.engines.kubernetes.objects import (
    CsiNode,
    CustomObject,
    CustomResourceDefinition,
    Pod,
    condition,
    key_of,
    owner_of,
)

POD = b"""{"kind": "Pod", "metadata": {"name": "a", "namespace": "t", "creationTimestamp": null, "managedFields": [{"x": 1}],
 "ownerReferences": [{"kind": "X", "name": "x", "uid": "1"}, {"kind": "Y", "name": "y", "uid": "2", "controller": true}]},
 "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}], "nodeName": "n",
  "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
   {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]}}}},
 "status": {"phase": "Failed", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "False"}],
  "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}}"""


def test_a_pod():
    pod = msgspec.json.decode(POD, type=Pod)
    assert (key_of(pod), pod.over, pod.spec.node_name, pod.status.pod_ip) == ("t/a", True, "n", "10.0.0.1")
    assert owner_of(pod).uid == "2"
    assert pod.spec.containers[0].resources.limits == {"nvidia.com/gpu": "1"}
    assert pod.spec.affinity.node_affinity.required.node_selector_terms[0].match_expressions[0].values == ("v",)
    assert pod.status.container_statuses[0].state.terminated.exit_code == 137
    assert condition(pod.status.conditions, "Ready").status == "False"
    assert condition(pod.status.conditions, "Other") is None


def test_ours_keep_the_spec_as_it_came():
    ours = msgspec.json.decode(
        b'{"metadata": {"name": "q"}, "spec": {"weight": "2"}, "status": {"running": 1}}', type=CustomObject
    )
    assert (key_of(ours), ours.spec_data(), ours.status) == ("q", {"weight": "2"}, {"running": 1})
    assert bytes(ours.spec) == b'{"weight": "2"}'


def test_a_definition_without_conditions_is_not_there_yet():
    assert not msgspec.json.decode(b'{"status": {"conditions": null}}', type=CustomResourceDefinition).established
    there = b'{"status": {"conditions": [{"type": "Established", "status": "True"}]}}'
    assert msgspec.json.decode(there, type=CustomResourceDefinition).established


def test_a_node_without_drivers_of_volumes_says_null_and_not_an_empty_list():
    found = msgspec.json.decode(b'{"metadata": {"name": "n"}, "spec": {"drivers": null}}', type=CsiNode)
    assert not found.spec.drivers
