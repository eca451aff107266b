"""Queue documents: what may be written, what it means, and the messages for mistakes."""

import pytest

from fairway.errors import SpecError
from fairway.spec.text.document import read_documents, render
from fairway.spec.text.writer import flat_data, kubernetes_data

FLAT = """\
kind: JobQueue
name: research
members: [group:nlp]
weight: 2
quota: {cpu: 64, gpu: {A100: 8}}
limits: {per_user: {gpu: 8}, timeout: 72h}
borrow: true
"""
KUBERNETES = {
    "apiVersion": "fairway.dev/v1alpha1",
    "kind": "JobQueue",
    "metadata": {"name": "research"},
    "spec": {
        "members": ["group:nlp"],
        "weight": "2",
        "quota": {"cpu": "64", "gpuTypes": {"A100": "8"}},
        "limits": {"perUser": {"gpu": "8"}, "timeout": "72h"},
    },
}


def mistakes(text):
    with pytest.raises(SpecError) as error:
        read_documents(f"kind: JobQueue\nname: research\n{text}\n", "queue.yaml")
    return [str(mistake) for mistake in error.value.mistakes]


def queue(text):
    (document,) = read_documents(f"kind: JobQueue\nname: research\n{text}\n")
    return document


def test_both_spellings_of_the_example():
    (document,) = read_documents(FLAT)
    assert kubernetes_data(document) == KUBERNETES
    assert read_documents(render(document, "kubernetes")) == [document]
    assert flat_data(document) == {
        "kind": "JobQueue",
        "name": "research",
        "members": ["group:nlp"],
        "weight": 2,
        "quota": {"cpu": 64, "gpu": {"A100": 8}},
        "limits": {"timeout": "72h", "per_user": {"gpu": 8}},
    }


def test_a_name_is_enough():
    assert kubernetes_data(queue(""))["spec"] == {}
    assert queue("").spec.members == ("*",)
    assert read_documents("apiVersion: fairway.dev/v1alpha1\nkind: JobQueue\nmetadata: {name: research}") == [queue("")]


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("quota: {gpu: {A100: 8}}", "quota: {gpu_types: {A100: 8}}"),
        ("quota: {gpu: A100:8}", "quota: {gpu_types: {A100: 8}}"),
        ("quota: {rdma/hca: 2, fpga: 1}", "quota: {other: {rdma/hca: 2, fpga: 1}}"),
        ("limits: {per_user: {gpu: A100:0.5, runs: 2}}", "limits: {per_user: {gpu_types: {A100: 0.5}, runs: 2}}"),
        ("members: user:ann", "members: [user:ann]"),
        ("time_slice:", "time_slice: never"),
    ],
)
def test_short_forms(short, long):
    assert queue(short) == queue(long)


def test_jobs_and_queues_stand_in_one_text():
    documents = read_documents(f"{FLAT}---\nkind: TrainingJob\nname: mnist\nqueue: research\ncommand: run\n")
    assert [document.kind for document in documents] == ["JobQueue", "TrainingJob"]


def test_every_mistake_at_once_with_its_place():
    assert mistakes("wieght: 0\nmembers: [nlp]\nquota: {gpus: 8, runs: 3}\nlimits: {timeout: soon}\nnamespace: team") == [
        "queue.yaml:3:1 wieght: is not a field here; did you mean `weight`?",
        "queue.yaml:3:9 wieght: 0 is not a valid weight; write more than 0, for example 1; to close a queue, delete it",
        'queue.yaml:4:11 members[0]: "nlp" is not a member: members are user:NAME, group:NAME or *; write user:nlp',
        "queue.yaml:5:9 quota.gpus: is not a field here; did you mean `gpu`?",
        "queue.yaml:5:18 quota.runs: is not a field here; it belongs in `per_user`",
        'queue.yaml:6:19 limits.timeout: "soon" is not a duration; write for example 90s, 5m, 1h30m or 2d',
        "queue.yaml:7:1 namespace: is not a field here; use one of kind, apiVersion, name, labels, annotations, members, weight,"
        " quota, limits, borrow, time_slice, defaults",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("weight: 0", "weight: 0 is not a valid weight; write more than 0"),
        ("members: []", "members: is empty; add at least one, or leave it out for all users"),
        ("members: [grup:nlp]", "write group:nlp"),
        ("members: ['user:']", "write for example user:ann or group:nlp"),
        ("members: [*]", 'put quotes round it: "*"'),
        ("users: [user:ann]", "users: is not a field here; did you mean `members`?"),
        ("quota: {gpu: many}", 'quota.gpu: "many" is not a number of GPUs; write for example 8, or {A100: 8}'),
        ("quota: {gpu: {A100: 8}, gpu_types: {H100: 1}}", "quota.gpu: names types, and so does `gpu_types`"),
        ("quota: {gpu: 4, gpu_types: {A100: 8}}", "quota.gpu_types.A100: 8 is more than the 4 GPUs of any type"),
        ("quota: {gpu: {A100: x}}", 'quota.gpu.A100: "x" is not an amount'),
        ("quota: {gpu: {' ': 1}}", "is not a GPU type; write for example A100"),
        ("quota: {other: {cpu: 1}}", "quota.other.cpu: 1 does not belong in `other`; write `cpu` outside `other`"),
        ("quota: {nvidia.com/gpu: 8}", "is the Kubernetes name for GPUs; write `gpu`"),
        ("quota: {fpga: x}", 'quota.fpga: "x" is text, not a whole number'),
        ("limits: {per_user: {rnus: 3}}", "limits.per_user.rnus: is not a field here; did you mean `runs`?"),
        ("limits: {timeout: 0}", "must be more than 0"),
        ("limits: {timeout: 1h}\ndefaults: {timeout: 2h}", 'defaults.timeout: "2h" is longer than the 1h that `limits` allows'),
        ("limits: {priority: 5}\ndefaults: {priority: 6}", "defaults.priority: 6 is higher than the 5 that `limits` allows"),
        ("limits: {priority: 5000}", "is more than 1000"),
        ("time_slice: 0s", "is neither a length of time nor `never`; write for example 1h or never"),
        ("time_slice: sometimes", "is neither a length of time nor `never`"),
        ("borrow: perhaps", "not true or false"),
    ],
)
def test_mistakes_say_what_to_do(text, said):
    assert any(said in mistake for mistake in mistakes(text)), mistakes(text)


def test_a_kind_that_is_none_is_told():
    with pytest.raises(SpecError, match=r'"Queue" is not a known kind of document; did you mean `JobQueue`\?'):
        read_documents("kind: Queue\nname: x")
