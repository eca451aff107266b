"""Mistakes in the administrator's file: all reported at once, each with its place, its value, the problem and the fix."""

from __future__ import annotations

import pytest

from fairway.engines.kubernetes.install.settings_file import read
from fairway.errors import SpecError

WRONG = """\
namespace: Fairway_System
replicas: two
gpus: plug-in
scheduler: kube
queueing: kue
runtimes:
  pytroch: {image: torch:2}
  jax: {python: python3}
run_volume: {emptyDir: {}, nfs: {}}
record_size: lots
resources: {opertor: {requests: {cpu: 1}}}
allowed: {host_path: [/data], host_paths: [data], service_accounts: default, host_network: "yes"}
gateway: front
gpu_nodes: {nvidia.com/gpu.present: true}
"""


def test_every_mistake_is_told_at_once_in_the_order_of_the_file() -> None:
    with pytest.raises(SpecError) as raised:
        read(WRONG, "i.yaml")
    told = [str(mistake) for mistake in raised.value.mistakes]
    assert told == [
        "i.yaml:1:1 image: is missing; write for example `image: registry.example/fairway:1`, or pass --image",
        'i.yaml:1:12 namespace: "Fairway_System" is not a name of a namespace; use small letters, digits and dashes',
        'i.yaml:2:11 replicas: "two" is text, not a whole number; write 2',
        'i.yaml:3:7 gpus: "plug-in" is not fairway or plugin; did you mean `plugin`?',
        "i.yaml:4:12 scheduler: \"kube\" is not one of fairway, cluster, ''; choose one of them, or leave it out",
        "i.yaml:5:11 queueing: \"kue\" is not one of '', kueue, volcano, kai; did you mean `kueue`?",
        "i.yaml:7:3 runtimes.pytroch: is not a framework; did you mean `pytorch`?",
        "i.yaml:8:8 runtimes.jax.image: is missing; add it",
        "i.yaml:9:13 run_volume: names 2 volumes: emptyDir, nfs; keep one, such as `persistentVolumeClaim: {claimName: runs}`",
        'i.yaml:10:14 record_size: "lots" is not an amount; write for example 10Gi',
        "i.yaml:11:13 resources.opertor: is not a process of Fairway; did you mean `operator`?",
        "i.yaml:11:39 resources.opertor.requests.cpu: 1 is a number, not text; put it in quotes",
        "i.yaml:12:11 allowed.host_path: is no field here; did you mean `host_paths`?",
        'i.yaml:12:44 allowed.host_paths[0]: "data" is not an absolute path; begin it with /',
        'i.yaml:12:69 allowed.service_accounts: "default" is text, not a list; write [a, b], or one `- a` line for each',
        'i.yaml:12:92 allowed.host_network: "yes" is text, not true or false; write true or false, without quotes',
        'i.yaml:13:10 gateway: "front" names no Gateway; write NAMESPACE/NAME, such as infra/front',
        "i.yaml:14:37 gpu_nodes.nvidia.com/gpu.present: true is a boolean, not text; put it in quotes",
    ]


def test_what_is_right_is_read_as_it_stands() -> None:
    text = """\
image: fairway:1
record:
runtimes: {default: {image: a, env: {A: "1"}}, serve-torch-export: {image: b}}
allowed: {host_paths: [/data]}
run_volume: {persistentVolumeClaim: {claimName: runs}}
"""
    assert read(text, "i.yaml") == {
        "image": "fairway:1",
        "runtimes": {"default": {"image": "a", "env": {"A": "1"}}, "serve-torch-export": {"image": "b"}},
        "allowed": {"host_paths": ["/data"]},
        "run_volume": {"persistentVolumeClaim": {"claimName": "runs"}},
    }


def test_an_image_may_come_from_elsewhere() -> None:
    assert read("replicas: 1\n", "i.yaml", image="fairway:1") == {"replicas": 1}
    assert read("replicas: 1\n", "i.yaml", required=False) == {"replicas": 1}


def test_bad_yaml_is_told_with_its_place() -> None:
    with pytest.raises(SpecError) as raised:
        read("image: a\n  gpus: b\n", "i.yaml")
    assert str(raised.value).startswith("i.yaml:2:7")
