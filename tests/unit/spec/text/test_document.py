"""Reading and writing documents: both spellings, all mistakes at once, in the terms of the spelling used."""

import time

import pytest

from fairway.errors import SpecError, UsageError
from fairway.spec.text.document import read_data, read_documents, render

KUBERNETES = """\
apiVersion: fairway.dev/v1alpha1
kind: TrainingJob
metadata: {name: mnist, labels: {team: nlp}}
spec:
  roles:
    worker:
      replicas: {min: 2, max: 2}
      command: [python, train.py]
      resources: {cpu: "1", gpuType: [A100]}
"""
FLAT = """\
kind: TrainingJob
name: mnist
labels: {team: nlp}
roles:
  worker:
    replicas: 2
    command: python train.py
    resources: {cpu: 1, gpu_type: A100}
"""
LONG = """\
kind: TrainingJob
name: mnist
framework: auto
code: .
environment:
  python: .venv
  requirements: requirements.txt
  image: pytorch/pytorch:2.9
env: {BATCH: "64"}
secrets: [HF_TOKEN]
data: {train: mnist@3, big: /data/imagenet, raw: s3://bucket/x, vol: pvc://claim/x}
roles:
  worker:
    replicas: 2
    processes: auto
    command: python train.py --data {{data.train}}
    resources: {cpu: 1, memory: 1Gi, gpu: 1, gpu_type: [A100, H100], shm: auto, rdma/hca: 1}
    limits: {memory: 2Gi}
stop: {at_step: 2000, when: "accuracy >= 0.98"}
timeout: 48h
restart: {max: 3, scope: gang}
checkpoint: {every: 5m, keep: 3}
outputs: {model: mnist}
queue: research
priority: 10
keep: {logs: 30d, record: forever}
kubernetes: {pod: {tolerations: [], serviceAccountName: train}, network: {host: false}}
"""


def mistakes(text, file="job.yaml"):
    with pytest.raises(SpecError) as caught:
        read_documents(text, file)
    return [str(mistake) for mistake in caught.value.mistakes]


def test_the_spellings_mean_the_same():
    assert read_documents(KUBERNETES) == read_documents(FLAT)


def test_what_a_cluster_adds_is_passed_over():
    text = (
        KUBERNETES.replace("name: mnist,", "name: mnist, uid: a, resourceVersion: '1', managedFields: [{}],")
        + "status: {phase: Running}\n"
    )
    assert read_documents(text) == read_documents(KUBERNETES)


def test_every_mistake_of_every_document_at_once():
    text = """\
kind: TrainingJob
name: Mnist
replicas: two
comand: python train.py
resources: {memory: lots}
stop: {when: accuracy => 1}
success: chief
env: {A: "{{worker_host}}"}
---
kind: TraningJob
---
apiVersion: v1
kind: TrainingJob
metadata: {}
spec: {roles: {worker: {command: [run]}}}
---
- a
---
kind: TrainingJob
name: a
command: run
command: again
---
name: b
"""
    assert mistakes(text) == [
        'job.yaml:2:7 name: "Mnist" is not a valid name: at most 52 lower-case letters, digits and dashes, beginning with a '
        "letter; try 'mnist'",
        'job.yaml:3:11 replicas: "two" is text, not a whole number; write 2',
        "job.yaml:4:1 comand: is not a field here; did you mean `command`?",
        'job.yaml:5:21 resources.memory: "lots" is not an amount of memory; write for example 512Mi, 2Gi or 1G',
        'job.yaml:6:14 stop.when: "accuracy => 1" has `=>`, which is not valid here; write >=',
        'job.yaml:7:10 success: "chief" needs a role `chief`, which is not defined; add it to the roles, or choose auto',
        'job.yaml:8:10 env.A: "{{worker_host}}" uses the macro {{worker_host}}, which does not exist; '
        "did you mean `worker_hosts`?",
        'job.yaml:10:7 kind: "TraningJob" is not a known kind of document; did you mean `TrainingJob`?',
        'job.yaml:12:13 apiVersion: "v1" is not fairway.dev/v1alpha1; write fairway.dev/v1alpha1',
        "job.yaml:14:11 metadata.name: is missing; add for example `name: mnist`",
        "job.yaml:17:1: is not a document; a document is a mapping; begin with `kind: TrainingJob`",
        "job.yaml:22:1 command: is defined twice; the first is on line 21; keep one of them",
        "job.yaml:24:1 kind: is missing; add `kind: TrainingJob`",
    ]


def test_the_kubernetes_spelling_has_one_type_a_field():
    text = """\
apiVersion: fairway.dev/v1alpha1
kind: TrainingJob
metadata: {name: 7}
spec:
  env: {A: 1, B: yes, C: true}
  code: .
  secrets: A
  roles:
    worker: {command: run, replicas: 2, processes: auto, resources: {cpu: 1, gpu_type: [a], tpu: 1}}
"""
    assert [mistake.partition(" ")[2] for mistake in mistakes(text)] == [
        "metadata.name: 7 is a number, not text; put it in quotes",
        "spec.env.A: 1 is a number, not text; put it in quotes",
        "spec.env.C: true is a boolean, not text; put it in quotes",
        'spec.code: "." is text, not a mapping; write `name: value` lines below it',
        'spec.secrets: "A" is text, not a list; write [a, b], or one `- a` line for each',
        'spec.roles.worker.command: "run" is text, not a list; write [a, b], or one `- a` line for each',
        "spec.roles.worker.replicas: 2 is a number, not a mapping; write `name: value` lines below it",
        'spec.roles.worker.processes: "auto" is text, not a whole number; write a whole number, without quotes',
        "spec.roles.worker.resources.cpu: 1 is a number, not text; put it in quotes",
        "spec.roles.worker.resources.gpu_type: is not a field here; did you mean `gpuType`?",
        "spec.roles.worker.resources.tpu: is not a field here; use one of cpu, memory, gpu, gpuShare, gpuType, gpuMemory,"
        " shm, other",
    ]


def test_a_number_too_large_to_be_exact_is_not_suggested() -> None:
    text = "kind: TrainingJob\nname: a\ncommand: x\nrestart: {max: 1e99}\n"
    assert [mistake.partition(" ")[2] for mistake in mistakes(text)] == [
        "restart.max: 1e+99 is a number, not a whole number; write a whole number, without quotes"
    ]


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("gpu: 1", "it belongs in `resources`"),
        ("at_step: 1", "it belongs in `stop`"),
        ("image: x", "it belongs in `environment`"),
        ("restarts: 3", "did you mean `restart`?"),
        ("timeOut: 3h", "did you mean `timeout`?"),
        ("workers: 3", "did you mean `replicas`?"),
        ("zebra: 3", "use one of kind, apiVersion, name"),
        ("stop: {timeout: 3}", "it belongs at the top level"),
        ("stop: {command: 3}", "it belongs in a role"),
        ("restart: {retries: 3}", "did you mean `max`?"),
    ],
)
def test_unknown_fields_come_with_the_way_out(text, fix):
    (mistake,) = mistakes(f"kind: TrainingJob\nname: x\ncommand: run\n{text}\n")
    assert "is not a field here" in mistake
    assert fix in mistake


def test_what_was_meant_is_checked_too():
    assert mistakes("kind: TrainingJob\nname: x\ncomand: run\nreplica: two\nstp: {at_step: 0}\n") == [
        "job.yaml:3:1 comand: is not a field here; did you mean `command`?",
        "job.yaml:4:1 replica: is not a field here; did you mean `replicas`?",
        "job.yaml:5:1 stp: is not a field here; did you mean `stop`?",
        "job.yaml:5:16 stp.at_step: 0 is less than 1; write 1 or more",
    ]


def test_texts_without_documents():
    for text in ("", "\n", "# nothing\n", "---\n---\n", "~", "null"):
        (mistake,) = mistakes(text)
        assert "contains no document" in mistake
    assert len(read_documents(f"---\n{FLAT}---\n---\n")) == 1


def test_a_syntax_error_does_not_hide_other_mistakes():
    messages = mistakes("kind: TrainingJob\nname: X\ncommand: run\n---\na: ]\n")
    assert [mistake.split(" ")[0] for mistake in messages] == ["job.yaml:2:7", "job.yaml:5:4:"]


def test_a_flood_of_mistakes_is_cut():
    started = time.process_time()
    messages = mistakes("kind: TrainingJob\nname: x\ncommand: run\n" + "".join(f"field{number}: 1\n" for number in range(20_000)))
    assert len(messages) == 101
    assert "has 19900 more mistakes" in messages[-1]
    assert time.process_time() - started < 5


def test_values_are_shown_short_and_printable():
    (mistake,) = mistakes('kind: TrainingJob\nname: x\ncommand: run\ntimeout: "\\e[31m' + "x" * 1000 + '"\n')
    assert r'timeout: "\x1b[31mxxx' in mistake
    assert len(mistake) < 250


@pytest.mark.parametrize(
    "name", ["../x", "x/../../etc", "é", "x; rm -rf /", "$(x)", "x\\n", "", "-x", "X", "x" * 100, "\\0", "a b", "`x`", "\\u202e"]
)
def test_bad_names_are_refused_wherever_a_name_stands(name):
    text = 'kind: TrainingJob\nname: "@"\nnamespace: "@"\nqueue: "@"\ndata: {"@": x}\nroles: {"@": {command: run}}\n'.replace(
        "@", name
    )
    places = {mistake.split(" ")[0] for mistake in mistakes(text)}
    assert {f"job.yaml:{line}:{column}" for line, column in ((2, 7), (3, 12), (4, 8), (5, 8), (6, 9))} <= places


def test_plain_data():
    assert read_data({"kind": "TrainingJob", "name": "x", "command": ["run", "1"], "env": {"A": 1, "B": True}}).spec.env == {
        "A": "1",
        "B": "true",
    }
    for bad in (
        {},
        [],
        None,
        3,
        {"kind": 3},
        {"kind": "TrainingJob"},
        {"kind": "TrainingJob", "name": "\ud800", "command": "x"},
        {1: object()},
    ):
        with pytest.raises(SpecError):
            read_data(bad)


def test_render_is_block_style_in_a_stable_order():
    (job,) = read_documents(
        LONG.replace("command: python train.py --data {{data.train}}", "script: |\n      set -x\n      python train.py\n")
    )
    text = render(job, "flat")
    assert "script: |\n  set -x\n  python train.py\n" in text
    assert text.splitlines()[:6] == [
        "kind: TrainingJob",
        "name: mnist",
        "code: .",
        "environment:",
        "  python: .venv",
        "  requirements: requirements.txt",
    ]
    assert "{{" not in text
    with pytest.raises(UsageError, match="'kubernets' is not a spelling") as caught:
        render(job, "kubernets")
    assert caught.value.fix == "did you mean `kubernetes`?"


def test_reading_is_fast():
    read_documents(LONG)
    started = time.process_time()
    for _ in range(20):
        read_documents(LONG)
    assert (time.process_time() - started) / 20 < 0.02
