from __future__ import annotations

from fairway.plan.scheduling.placement.mix import Learner, Mix
from fairway.plan.scheduling.shape import Shape, Where


def test_a_mix_is_a_plain_value() -> None:
    one, two = Shape(cpu=1000, gpus=1), Shape(cpu=2000)
    assert Mix.of([one, two, one]) == Mix.of({two: 1, one: 2}) == Mix(((one, 2), (two, 1)))
    assert len({Mix.of([one]), Mix.of({one: 1})}) == 1
    assert Mix.of([one, two]).total == 2
    assert not Mix()


def test_what_makes_no_difference_to_a_score_is_left_out() -> None:
    plain = Shape(cpu=1000, gpus=1)
    special = Shape(cpu=1000, gpus=1, memory=512, other=(("nic", 1),), where=Where(nodes=("a",)))
    assert Mix.of([plain, special]).counts == ((plain, 2),)


def test_equal_counts_have_an_order_of_their_own() -> None:
    small, large = Shape(cpu=1000, gpus=1), Shape(cpu=2000, gpus=1)
    assert Mix.of([small, large]) == Mix.of([large, small])


def test_learning_waits_twice_as_long_each_time() -> None:
    learner = Learner()
    times = [count for count in range(1, 300) if learner.see(Shape(gpus=1)) is not None]
    assert times == [32, 64, 128, 256]


def test_a_learner_goes_on_where_it_was() -> None:
    learner = Learner()
    for _ in range(40):
        learner.see(Shape(gpus=1))
    again = Learner(learner.counts, learner.learnt_at)
    assert [again.see(Shape(gpus=2)) for _ in range(24)] == [learner.see(Shape(gpus=2)) for _ in range(24)]
    assert again.learnt_at == 64
