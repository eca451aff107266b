"""Guards on outputs: NaN and infinities, and answers to copied requests that differ from those of the clients."""

from dataclasses import replace

import numpy as np

from fairway.plan.service.guard import output_guard, rollout_guard
from fairway.plan.service.service_plan import ServiceMeasurements, ServiceSample
from fairway.state.serving.load import OutputComparison, ReplicaLoad, RevisionLoad, RouteLoad
from fairway.testing.builder.service_builder import a_service, apply_version


class Answers:
    """Feeds a release with the output counts of replicas and the router, measurement by measurement."""

    def __init__(self, strategy="canary", seed=0, **guard):
        rollout = {"strategy": strategy, "guard": guard}
        self.service = apply_version(a_service(2), 2, 0.0, rollout=rollout)
        self.rollout = replace(self.service.rollout, step=0)
        self.chance = np.random.default_rng(seed)
        self.measured = ServiceMeasurements()
        self.loads = {"r1-1": ReplicaLoad(0.0), "r2-2": ReplicaLoad(0.0)}
        self.pairs, self.now, self.verdict = OutputComparison(), 0.0, None
        self.look()

    def look(self, new=0, old=0, bad=(0.0, 0.0), refused=0, **pairs):
        for name, count, share in (("r2-2", new, bad[0]), ("r1-1", old, bad[1])):
            was = self.loads[name]
            self.loads[name] = replace(
                was,
                served=was.served + count + refused,
                client_errors=was.client_errors + refused,
                non_finite=was.non_finite + int(self.chance.binomial(count, share)),
            )
        self.pairs = self.pairs.plus(OutputComparison(**pairs))
        self.now += 2.0
        route = RouteLoad(self.now, epoch="a", revisions={1: RevisionLoad(), 2: RevisionLoad(outputs=self.pairs)})
        self.measured = self.measured.add(ServiceSample(self.now, route, dict(self.loads)))
        marks, self.verdict = rollout_guard.of_answers(self.service, self.rollout, self.measured)
        self.rollout = replace(self.rollout, marks=marks)
        return self.verdict

    def until_it_speaks(self, looks=200, **answers):
        return next((count for count in range(looks) if self.look(**answers)), None)

    @property
    def findings(self):
        return rollout_guard.findings(self.service, self.rollout)


def test_answers_without_a_number_speak_with_both_numbers():
    answers = Answers()
    assert answers.until_it_speaks(new=5, old=95, bad=(0.3, 0.0)) <= 15
    assert answers.verdict.guard == "non_finite"
    assert "of r2's answers have NaN or infinity in an output" in answers.verdict.reason
    assert "0.0% of r1's" in answers.verdict.reason
    assert "allowed is 1%" in answers.verdict.reason
    assert answers.findings[0].startswith("non-finite: ")


def test_answers_without_a_number_that_both_have_or_that_are_allowed_stop_nothing():
    for share in (0.02, 0.5, 1.0):
        assert Answers().until_it_speaks(new=10, old=90, bad=(share, share)) is None
    assert Answers().until_it_speaks(new=10, old=90, bad=(0.005, 0.0)) is None
    assert Answers(non_finite="100%").until_it_speaks(new=10, old=90, bad=(1.0, 0.0)) is None
    assert Answers(non_finite="30%").until_it_speaks(new=10, old=90, bad=(0.1, 0.0)) is None


def test_without_the_old_one_beside_it_they_are_held_against_what_is_allowed():
    answers = Answers()
    answers.look(old=500)
    assert answers.until_it_speaks(new=50, bad=(0.2, 0.0)) is not None
    assert answers.verdict.guard == "non_finite"


def test_client_errors_are_no_answers_with_numbers():
    answers = Answers()
    answers.look(new=5, old=5, refused=1000)
    assert answers.rollout.marks["non_finite.n"] == 5


def test_a_replica_that_was_not_seen_before_counts_from_its_first_look():
    answers = Answers()
    answers.loads["r2-9"] = ReplicaLoad(0.0, served=10_000, non_finite=10_000)
    assert answers.look(new=1, old=1) is None
    assert "non_finite.k" not in answers.rollout.marks or answers.rollout.marks["non_finite.k"] == 0


def shadow(**outputs_guard):
    return Answers("shadow", outputs=outputs_guard)


def test_answers_that_differ_speak_with_their_number_and_the_tolerance():
    answers = shadow(tolerance="0.01")
    found = answers.until_it_speaks(compared=20, differing=19, classified=20, reclassified=18, largest=1.9)
    assert found <= 5
    assert answers.verdict.guard == "outputs"
    assert "95.0% of r2's answers differ from r1's to the same requests" in answers.verdict.reason
    assert "values differ by at most 1.9 of the largest in their output, tolerance 0.01" in answers.verdict.reason
    assert "allowed is 1%" in answers.verdict.reason
    assert "90.0% of r2's answers name another class than r1's" in answers.verdict.reason


def test_other_names_or_shapes_are_named():
    answers = shadow()
    assert answers.until_it_speaks(compared=20, differing=20, relaid=20) is not None
    assert "by the names, types or shapes of their outputs" in answers.verdict.reason


def test_few_that_differ_and_those_that_the_document_allows_stop_nothing():
    assert shadow().until_it_speaks(compared=200, differing=1, largest=0.5) is None
    assert shadow(differ="30%").until_it_speaks(compared=20, differing=4) is None
    assert shadow(differ="100%").until_it_speaks(compared=20, differing=20, classified=20, reclassified=20) is None
    answers = shadow(differ="100%")
    assert answers.until_it_speaks(looks=20, compared=20, differing=20) is None
    assert answers.findings[0].endswith("allowed is 100%")
    answers = Answers("shadow")
    assert answers.until_it_speaks(compared=20, differing=20) is None
    assert answers.findings == ()


def test_a_version_that_was_trained_anew_is_judged_by_its_classes():
    answers = shadow(differ="100%", classes="5%")
    assert answers.until_it_speaks(looks=100, compared=50, differing=50, classified=50, reclassified=1, largest=0.4) is None
    assert answers.until_it_speaks(compared=50, differing=50, classified=50, reclassified=6, largest=0.4) is not None
    assert answers.verdict.guard == "outputs"
    assert "name another class than r1's to the same requests" in answers.verdict.reason
    assert "allowed is 5%" in answers.verdict.reason


def test_what_is_no_number_beside_one_comes_before_what_differs():
    answers = shadow()
    assert answers.until_it_speaks(compared=20, differing=10, non_finite=10) is not None
    assert answers.verdict.guard == "non_finite"
    assert "where r1's answers to the same requests are finite" in answers.verdict.reason


def test_what_both_lack_now_and_then_on_other_requests_stops_nothing():
    """A model that is not deterministic: each version fails to return a number where the other does, equally often."""
    answers, chance = shadow(differ="100%"), np.random.default_rng(3)
    for _ in range(300):
        lost, restored = (int(chance.binomial(40, 0.04)) for _ in range(2))
        assert answers.look(compared=40, non_finite=lost, restored=restored) is None
    assert answers.until_it_speaks(compared=40, non_finite=8, restored=2) is not None
    assert answers.verdict.guard == "non_finite"


def test_status_shows_what_was_compared_and_what_was_not():
    answers = shadow()
    answers.look(compared=100, differing=0, classified=100, largest=0.0002)
    first, second = answers.findings
    assert first.startswith("outputs: 0.0% of r2's answers differ from r1's to the same requests (0 of 100 compared")
    assert second.startswith("outputs: 0.0% of r2's answers name another class")
    answers.look(incomparable=7, skipped=3)
    assert answers.findings[-1] == "outputs: not compared: 7 answers in a form that is not comparable, 3 that came too fast"


def test_of_two_hundred_equal_versions_with_some_answers_without_a_number_at_most_one_in_fifty_goes_back():
    back = 0
    for seed in range(200):
        answers = Answers(seed=seed)
        back += answers.until_it_speaks(looks=60, new=5, old=95, bad=(0.03, 0.03)) is not None
    assert back <= 4


def test_a_comparison_of_two_routers_is_the_sum_of_both():
    one, other = OutputComparison(compared=3, differing=1, largest=0.5), OutputComparison(compared=4, largest=0.2)
    assert one.plus(other) == OutputComparison(compared=7, differing=1, largest=0.5)
    assert other.since(one).compared == 1
    assert one.since(other).compared == 0
    assert output_guard.compared({"outputs.n": 3.0}) == 3.0
