from __future__ import annotations

from fairway.plan.scheduling.gang import TaskNodeSelector, TaskShape
from fairway.plan.scheduling.workload_mix import DoublingMixLearner, WorkloadMix


def test_a_mix_is_a_plain_value() -> None:
    one, two = TaskShape(cpu=1000, gpus=1), TaskShape(cpu=2000)
    assert WorkloadMix.of([one, two, one]) == WorkloadMix.of({two: 1, one: 2}) == WorkloadMix(((one, 2), (two, 1)))
    assert len({WorkloadMix.of([one]), WorkloadMix.of({one: 1})}) == 1
    assert WorkloadMix.of([one, two]).total == 2
    assert not WorkloadMix()


def test_what_makes_no_difference_to_a_score_is_left_out() -> None:
    plain = TaskShape(cpu=1000, gpus=1)
    special = TaskShape(cpu=1000, gpus=1, memory=512, other=(("nic", 1),), where=TaskNodeSelector(nodes=("a",)))
    assert WorkloadMix.of([plain, special]).counts == ((plain, 2),)


def test_equal_counts_have_an_order_of_their_own() -> None:
    small, large = TaskShape(cpu=1000, gpus=1), TaskShape(cpu=2000, gpus=1)
    assert WorkloadMix.of([small, large]) == WorkloadMix.of([large, small])


def test_learning_waits_twice_as_long_each_time() -> None:
    learner = DoublingMixLearner()
    times = [count for count in range(1, 300) if learner.see(TaskShape(gpus=1)) is not None]
    assert times == [32, 64, 128, 256]


def test_a_learner_goes_on_where_it_was() -> None:
    learner = DoublingMixLearner()
    for _ in range(40):
        learner.see(TaskShape(gpus=1))
    again = DoublingMixLearner(learner.counts, learner.learnt_at)
    assert [again.see(TaskShape(gpus=2)) for _ in range(24)] == [learner.see(TaskShape(gpus=2)) for _ in range(24)]
    assert again.learnt_at == 64
