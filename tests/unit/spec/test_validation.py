"""Rules between fields. Each rule is broken once, in the smallest document that breaks it."""

import pytest

from fairway.errors import SpecError
from fairway.spec import validation
from fairway.spec.job import TrainingJob
from fairway.spec.text.mistake_report import spec_error


def job(worker=None, metadata=None, roles=None, **spec):
    roles = {"worker": {"command": ["run"], **(worker or {})}, **(roles or {})}
    return TrainingJob.model_validate({"metadata": {"name": "x", **(metadata or {})}, "spec": {"roles": roles, **spec}})


@pytest.mark.parametrize(
    ("document", "at", "words"),
    [
        (job(success="chief"), "spec.success", "needs a role `chief`"),
        (job(success="launcher"), "spec.success", "needs a role `launcher`"),
        (job(secrets=["A"], env={"A": "x"}), "spec.secrets.0", "also a variable in `env`"),
        (job(secrets=["A", "A"]), "spec.secrets.1", "listed twice"),
        (job({"env": {"A": "x"}}, secrets=["A"]), "spec.roles.worker.env.A", "is a secret too"),
        (job(data={"a": " "}), "spec.data.a", "is empty"),
        (job(outputs={"a": ""}), "spec.outputs.a", "is empty"),
        (job(code={"path": "s3://x"}), "spec.code.path", "is not a folder"),
        (job(environment={"container": "always"}), "spec.environment.container", "needs an image"),
        (job(roles={"ps": {"command": ["x"], "replicas": {"max": 10_000}}}), "spec.roles", "have 10,001 replicas in total"),
        (job({"command": ["a", "{{output.model}}"]}), "spec.roles.worker.command.1", "macro {{output.model}}"),
        (job({"env": {"A": "{{wrker_hosts}}"}}), "spec.roles.worker.env.A", "macro {{wrker_hosts}}"),
        (job(env={"A": "{{x}}"}), "spec.env.A", "macro {{x}}"),
        (job({"resources": {"gpu": "1.5"}}), "spec.roles.worker.resources.gpu", "not a whole number"),
        (
            job({"resources": {"other": {"nvidia.com/gpu": 1}}}),
            "spec.roles.worker.resources.other.nvidia.com/gpu",
            "Kubernetes name for GPUs",
        ),
        (
            job({"resources": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}),
            "spec.roles.worker.limits.memory",
            "less than the 2Gi",
        ),
        (job({"resources": {"cpu": "2"}, "limits": {"cpu": "500m"}}), "spec.roles.worker.limits.cpu", "less than the 2"),
        (job({"placement": {"together": True, "apart": True}}), "spec.roles.worker.placement", "both `together` and `apart`"),
        (job(metadata={"labels": {"a b": "x"}}), "metadata.labels.a b", "not a valid label name"),
        (job(metadata={"labels": {"a": "x y"}}), "metadata.labels.a", "not a valid label value"),
        (job({"command": ["a\0b"]}), "spec.roles.worker.command.0", "NUL"),
        (job(code={"path": "a\0b"}), "spec.code.path", "NUL"),
        (job(kubernetes={"pod": {"a": [{"b": "\0"}]}}), "spec.kubernetes.pod.a.0.b", "NUL"),
    ],
)
def test_a_broken_rule_is_one_problem(document, at, words):
    (problem,) = validation.problems(document)
    assert ".".join(str(step) for step in problem.at) == at
    assert words in problem.message
    assert problem.fix


@pytest.mark.parametrize(
    "document",
    [
        job(success="chief", roles={"chief": {"command": ["x"]}}),
        job(success="chief", roles={"master": {"command": ["x"]}}),
        job(
            {"command": ["{{worker_hosts}}", "{{ps_hosts}}", "{{data.d}}", "{{output.o}}", "{{{{x}}}}"]},
            data={"d": "x"},
            outputs={"o": "x"},
        ),
        job({"script": "echo {{whatever}}", "command": []}),
        job({"resources": {"gpu": "0.5", "cpu": "1"}, "limits": {"cpu": "1000m"}}),
        job(metadata={"labels": {"fairway.dev/team": "nlp"}, "annotations": {"a": "any text at all"}}),
        job(roles={"param-server": {"command": ["{{param-server_hosts}}"]}}),
    ],
)
def test_no_problem(document):
    assert validation.problems(document) == []
    validation.refuse_problems(document)


def test_documents_made_by_a_program():
    with pytest.raises(SpecError, match=r"roles\.worker\.limits\.memory: is less than") as caught:
        validation.refuse_problems(job({"resources": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}))
    assert len(caught.value.mistakes) == 1


def test_pydantic_errors_of_a_program_in_plain_words():
    with pytest.raises(ValueError, match="validation error") as caught:
        job({"resources": {"gpu_type": 3}, "env": {"1": "x"}, "comand": 1}, stop={"at_step": 0})
    assert [str(mistake) for mistake in spec_error(caught.value, "sdk").mistakes] == [
        'sdk spec.roles.worker.env.1: "1" is not a valid variable name: letters, digits and underscores, '
        "not beginning with a digit",
        "sdk spec.roles.worker.resources.gpu_type: 3 is a number, not a list; write [a, b], or one `- a` line for each",
        "sdk spec.roles.worker.comand: 1 is not a field here; remove it",
        "sdk spec.stop.at_step: 0 is less than 1; write 1 or more",
    ]
