"""Every way to request GPUs, and constraints on placement."""

import pytest

from fairway.errors import SpecError
from fairway.spec.resource import GpuRequest, ResourceAmounts, gpu_ask
from fairway.spec.text.document import read_documents

GIB = 1 << 30


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, GpuRequest(0)),
        ({"gpu": "0"}, GpuRequest(0)),
        ({"gpu": "1"}, GpuRequest(1, 1000)),
        ({"gpu": "8", "gpu_memory": "40Gi"}, GpuRequest(8, 1000, 40 * GIB)),
        ({"gpu": "0.25"}, GpuRequest(1, 250)),
        ({"gpu": "250m", "gpu_memory": "2Gi"}, GpuRequest(1, 250, 2 * GIB)),
        ({"gpu": "4", "gpu_share": "0.5"}, GpuRequest(4, 500)),
        ({"gpu_share": "0.5", "gpu_memory": "2Gi"}, GpuRequest(1, 500, 2 * GIB)),
        ({"gpu_memory": "2Gi"}, GpuRequest(1, 1, 2 * GIB)),
        ({"gpu": "2", "gpu_share": "1"}, GpuRequest(2, 1000)),
        ({"gpu": "0.0001"}, GpuRequest(1, 1)),
    ],
)
def test_gpus_in_numbers(asked, found):
    assert gpu_ask(ResourceAmounts.model_validate(asked)) == found


def mistakes(text):
    with pytest.raises(SpecError) as error:
        read_documents(f"kind: TrainingJob\nname: x\ncommand: run\n{text}\n")
    return [str(mistake) for mistake in error.value.mistakes]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("resources: {gpu: 1.5}", "is more than one GPU and not a whole number; write 1 or 2"),
        ("resources: {gpu: 1, gpu_share: 1.5}", "is not a valid share of a GPU; write more than 0 and at most 1"),
        ("resources: {gpu_share: 0}", "is not a valid share of a GPU"),
        ("resources: {gpu: 0.5, gpu_share: 0.5}", "already requests a share of a GPU, and so does `gpu_share`; write `gpu: 1`"),
        ("resources: {gpu: 0, gpu_memory: 1Gi}", 'resources.gpu_memory: "1Gi" needs a GPU, but `gpu` is 0; remove it'),
        ("resources: {gpu: 0, gpu_share: 0.5}", "needs a GPU, but `gpu` is 0"),
        (
            "placement: {alone: true}",
            "placement.alone: true applies to GPUs, but no GPU is requested; request a GPU, or remove it",
        ),
        ("placement: {tolerations: ['']}", 'placement.tolerations[0]: "" is empty; write the name of a taint, or * for all'),
    ],
)
def test_mistakes_say_what_to_do(text, said):
    assert any(said in mistake for mistake in mistakes(text)), mistakes(text)


def test_places_and_neighbours():
    text = "resources: {gpu_memory: 2Gi}\nplacement: {alone: yes, same_rack: yes, tolerations: spot}"
    (job,) = read_documents(f"kind: TrainingJob\nname: x\ncommand: run\n{text}")
    where = job.spec.roles["worker"].placement
    assert (where.alone, where.same_rack, where.tolerations) == (True, True, ("spot",))
