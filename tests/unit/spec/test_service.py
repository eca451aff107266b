"""The service document: short forms, both spellings, and what is refused."""

import pytest

from fairway.errors import SpecError
from fairway.spec.text.document import read_documents, render

FULL = """
kind: ModelService
name: mnist
model: mnist@champion
replicas: {min: 1, max: 4}
objective: 50ms
resources: {cpu: 1, memory: 512Mi, gpu: 0.25}
rollout:
  strategy: canary
  steps: [{to: 5%, for: 10m}, {to: 50%, for: 1h}]
  guard: {errors: 2%, p95: 80ms, metric: accuracy}
"""


def service(text):
    (document,) = read_documents(f"kind: ModelService\nname: mnist\n{text}\n")
    return document


def mistakes(text):
    with pytest.raises(SpecError) as caught:
        read_documents(f"kind: ModelService\nname: mnist\n{text}\n", "s.yaml")
    return [str(mistake) for mistake in caught.value.mistakes]


def test_the_flat_spelling_with_its_short_forms():
    (document,) = read_documents(FULL)
    spec = document.spec
    assert (spec.replicas.min, spec.replicas.max, spec.objective.p95) == (1, 4, "50ms")
    assert [(step.to, step.for_) for step in spec.rollout.steps] == [("5%", "10m"), ("50%", "1h")]
    assert spec.rollout.guard.metric is not None
    assert (spec.rollout.guard.metric.name, spec.rollout.guard.metric.better) == ("accuracy", "higher")
    assert service("model: m\nreplicas: 2").spec.replicas.max == 2
    assert service("command: vllm serve m --port 1").spec.command == ("vllm", "serve", "m", "--port", "1")


def test_for_is_spelt_for_in_both_spellings():
    (document,) = read_documents(FULL)
    for spelling in ("flat", "kubernetes"):
        text = render(document, spelling)
        assert "for: 1h" in text
        assert "for_" not in text
        assert read_documents(text) == [document]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port: 80", "s.yaml:1:1: has neither a model nor a command; add a model or a command"),
        ("model: m\ncommand: run", "command: is set together with a model; keep one of them"),
        ("model: M!", 'model: "M!" is not a model name: write for example mnist, mnist@7 or mnist@champion'),
        ("model: m\nreplicas: {min: 3, max: 2}", "replicas: min 3 is more than max 2; swap them"),
        ("model: m\nrollout: {steps: [5%]}", "rollout: has steps, but rolling does not support them"),
        ("model: m\nrollout: {strategy: canary, steps: [50%, 5%]}", "rollout: has steps that go down"),
        (
            "model: m@3\nfollow: true",
            "follow: true needs an alias to follow, but m@3 is a fixed version; write `model: m@champion`",
        ),
        ("model: m\nscaling: {utilisation: 0%}", "must be more than 0%"),
        ("command: run\nfollow: true", "needs a model to follow, but no model is set"),
        ("command: a && b", "save a script and run `bash FILE` for bash"),
        ("model: m\nrollout: {strategy: shadow, guard: {metric: m}}", "users never see the answers of a shadow release"),
        ("model: m\nrollout: {strategy: canary, guard: {outputs: 1%}}", "compares answers of both versions to the same request"),
        ("model: m\nreplica: 2", "did you mean `replicas`?"),
        ("model: m\nrollout: {strategy: canary, steps: [{to: 5%, for_: 1m}]}", "did you mean `for`?"),
        ("model: m\nsecrets: [A, A]", "is listed twice"),
        ("model: m\nresources: {gpu: 1.5}", "is more than one GPU and not a whole number"),
    ],
)
def test_what_is_refused_says_where_and_how_to_mend_it(text, said):
    (mistake,) = mistakes(text)
    assert said in mistake
