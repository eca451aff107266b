"""Guards on answers: what each detects, what it reports, and that nothing is counted twice."""

from dataclasses import replace

import numpy as np
import pytest

from fairway.plan.service.guard import rollout_guard
from fairway.plan.service.service_plan import ServiceMeasurements, ServiceSample
from fairway.state.service import ServiceRollout
from fairway.state.serving.load import RevisionLoad, RouteLoad
from fairway.testing.builder.service_builder import a_service, apply_version, latency_bars

FAST = 0.01


class Watch:
    """Feeds a release with answers, measurement by measurement."""

    def __init__(self, seed=0, traffic=None, **guard):
        rollout = {"strategy": "canary", "guard": guard}
        service = apply_version(a_service(2), 2, 0.0, rollout=rollout, traffic=traffic or {})
        self.service = service
        self.rollout = replace(service.rollout, step=0)
        self.measured = ServiceMeasurements()
        self.chance = np.random.default_rng(seed)
        self.counts = {1: RevisionLoad(latency=latency_bars({})), 2: RevisionLoad(latency=latency_bars({}))}
        self.now, self.epoch, self.verdict = 0.0, "a", None
        self.look()

    def look(self, new=0, old=0, errors=(0.0, 0.0), took=(FAST, FAST), good=(0.9, 0.9), refused=(0.0, 0.0), copies=0):
        self._copy(copies, errors[0], refused[0])
        for index, (number, count) in enumerate(((2, new), (1, old))):
            failed = int(self.chance.binomial(count, errors[index]))
            client = int(self.chance.binomial(count - failed, refused[index]))
            right = int(self.chance.binomial(count - failed, good[index]))
            before = self.counts[number]
            n, total, squares = before.outcomes.get("clicks", (0, 0.0, 0.0))
            bars = latency_bars({took[index]: count - client})
            self.counts[number] = replace(
                before,
                answered=before.answered + count - failed,
                client_errors=before.client_errors + client,
                failed=before.failed + failed,
                latency=tuple(one + other for one, other in zip(before.latency, bars, strict=True)),
                outcomes={"clicks": (n + count - failed, total + right, squares + right)},
            )
        self.now += 2.0
        route = RouteLoad(self.now, epoch=self.epoch, revisions=dict(self.counts))
        self.measured = self.measured.add(ServiceSample(self.now, route))
        marks, self.verdict = rollout_guard.of_answers(self.service, self.rollout, self.measured)
        self.rollout = replace(self.rollout, marks=marks)
        return self.verdict

    def _copy(self, count, errors, refused):
        failed = int(self.chance.binomial(count, errors))
        client = int(self.chance.binomial(count - failed, refused))
        seen = self.counts[2]
        self.counts[2] = replace(
            seen,
            mirrored=seen.mirrored + count,
            mirror_failed=seen.mirror_failed + failed,
            mirror_client_errors=seen.mirror_client_errors + client,
        )

    def until_it_speaks(self, looks=300, **answers):
        for count in range(looks):
            if self.look(**answers):
                return count
        return None


def test_errors_speak_with_both_numbers():
    watch = Watch()
    assert watch.until_it_speaks(new=10, old=90, errors=(0.05, 0.001)) is not None
    assert watch.verdict.guard == "errors"
    assert "of r2's answers failed" in watch.verdict.reason
    assert "of r1's" in watch.verdict.reason
    assert "allowed is 1%" in watch.verdict.reason


def test_errors_that_both_have_are_nobodys_fault_and_few_are_allowed():
    assert Watch().until_it_speaks(new=20, old=80, errors=(0.2, 0.2)) is None
    assert Watch().until_it_speaks(new=20, old=80, errors=(0.008, 0.0001)) is None


def test_without_the_old_one_beside_it_errors_are_held_against_what_is_allowed():
    watch = Watch()
    watch.look(old=500, errors=(0.0, 0.002))
    assert watch.until_it_speaks(new=50, errors=(0.04, 0.0)) is not None
    assert watch.verdict.guard == "errors"
    assert Watch(seed=1).until_it_speaks(new=50, errors=(0.005, 0.0)) is None


def test_slower_than_the_old_one_at_the_same_time():
    watch = Watch()
    assert watch.until_it_speaks(new=10, old=90, took=(0.05, 0.01)) is not None
    assert watch.verdict.guard == "slower"
    assert "allowed is 2 times as much" in watch.verdict.reason
    assert Watch().until_it_speaks(new=10, old=90, took=(0.5, 0.5)) is None
    assert Watch(slower="0").until_it_speaks(new=10, old=90, took=(0.05, 0.01), looks=100) is None


def test_slower_than_the_document_allows_unless_the_old_one_is_too():
    watch = Watch(p95="20ms", slower="0")
    assert watch.until_it_speaks(new=10, old=90, took=(0.03, 0.01)) is not None
    assert watch.verdict.guard == "p95"
    assert "the limit is 20ms" in watch.verdict.reason
    assert Watch(p95="20ms", slower="0").until_it_speaks(new=10, old=90, took=(0.03, 0.03), looks=100) is None


@pytest.mark.parametrize(("better", "good"), [("higher", (0.7, 0.9)), ("lower", (0.9, 0.7))])
def test_a_worse_metric_speaks_in_its_direction(better, good):
    watch = Watch(metric={"name": "clicks", "better": better})
    assert watch.until_it_speaks(new=10, old=90, good=good) is not None
    assert watch.verdict.guard == "metric"
    assert f"{better} is better" in watch.verdict.reason
    assert Watch(metric={"name": "clicks", "better": better}).until_it_speaks(new=10, old=90, good=good[::-1], looks=100) is None


def test_nothing_is_counted_twice_and_a_restart_of_either_process_loses_only_what_was_between():
    watch = Watch()
    for _ in range(10):
        watch.look(new=10, old=90)
    again, _ = rollout_guard.of_answers(watch.service, watch.rollout, watch.measured)
    assert again == watch.rollout.marks
    assert again["errors.n"] == 100
    watch.measured = ServiceMeasurements(watch.measured.samples[-1:])
    watch.look(new=10, old=90)
    assert watch.rollout.marks["errors.n"] == 110
    watch.epoch, watch.counts = "b", {number: RevisionLoad(latency=latency_bars({})) for number in (1, 2)}
    watch.look(new=5, old=90)
    assert watch.rollout.marks["errors.n"] == 115
    watch.measured = ServiceMeasurements()
    watch.look(new=10, old=90)
    assert watch.rollout.marks["errors.n"] == 115


def test_a_step_begins_the_comparison_of_the_metric_anew():
    marks = {"metric.new.n": 5.0, "errors.n": 3.0, "share": 0.5}
    assert rollout_guard.without_metric(marks) == {"errors.n": 3.0, "share": 0.5}


def test_of_two_hundred_releases_of_the_same_version_at_most_one_in_twenty_goes_back():
    """With equal errors, an equal metric and equal latencies, checked again and again."""
    back = 0
    for seed in range(200):
        watch = Watch(seed=seed, metric={"name": "clicks"})
        back += watch.until_it_speaks(new=20, old=180, errors=(0.015, 0.015), looks=40) is not None
    assert back <= 10


def test_what_was_seen_so_far_is_said_in_sentences():
    watch = Watch(metric={"name": "clicks"})
    assert rollout_guard.findings(watch.service, watch.rollout) == (
        "metric: 0 and 0 reports of clicks; at least 50 of each revision are needed",
    )
    for _ in range(20):
        watch.look(new=10, old=90)
    errors, slower, metric = rollout_guard.findings(watch.service, watch.rollout)
    assert errors == "errors: 0.0% of r2's answers failed (0 of 200), 0.0% of r1's (0 of 1800); allowed is 1%"
    assert slower.startswith("slower: p95 of r1 is 11ms; r2 is allowed 2 times as much")
    assert metric.startswith("metric: clicks changed by")
    worse = Watch()
    for _ in range(6):
        worse.look(new=10, old=90, errors=(0.1, 0.0))
    assert "of the test's threshold" in rollout_guard.findings(worse.service, worse.rollout)[0]


def test_marks_of_another_release_are_not_needed():
    assert rollout_guard.comparison(a_service(), ServiceRollout(1, 2)) is None


def test_answers_to_requests_that_waited_for_a_replica_are_not_held_against_the_revision():
    watch = Watch()
    watch.look(old=500)
    last = watch.measured.samples[-1]
    watch.measured = ServiceMeasurements((*watch.measured.samples[:-1], replace(last, route=replace(last.route, held=5))))
    for _ in range(7):
        assert watch.look(new=20, took=(3.0, FAST)) is None
    assert not any(name.startswith("slower:") for name in watch.rollout.marks)
    assert watch.until_it_speaks(new=20, took=(3.0, FAST)) is not None
    assert watch.verdict.guard == "slower"


def test_client_errors_that_only_the_new_one_has_speak_with_both_numbers():
    watch = Watch()
    assert watch.until_it_speaks(new=5, old=95, refused=(0.8, 0.0)) <= 6
    assert watch.verdict.guard == "client_errors"
    assert "of r2's answers were client errors (4xx)" in watch.verdict.reason
    assert "0.0% of r1's" in watch.verdict.reason
    assert "allowed is 1%" in watch.verdict.reason


def test_client_errors_of_copies_speak():
    watch = Watch()
    assert watch.until_it_speaks(copies=20, old=100, refused=(0.8, 0.02)) <= 10
    assert watch.verdict.guard == "client_errors"


def test_client_errors_that_both_have_are_the_clients_own():
    for part in (0.02, 0.3, 0.9):
        assert Watch().until_it_speaks(new=20, old=80, refused=(part, part)) is None
        assert Watch().until_it_speaks(copies=20, old=80, refused=(part, part)) is None


def test_few_client_errors_and_those_that_the_document_allows_send_nothing_back():
    assert Watch().until_it_speaks(new=20, old=80, refused=(0.008, 0.0001)) is None
    assert Watch(client_errors="20%").until_it_speaks(new=20, old=80, refused=(0.1, 0.0), looks=100) is None
    assert Watch(client_errors="100%").until_it_speaks(new=20, old=80, refused=(1.0, 0.0), looks=100) is None
    watch = Watch()
    watch.look(new=2, old=20, refused=(1.0, 0.0))
    assert watch.verdict is None


def test_a_version_that_refuses_what_the_old_one_failed_on_is_no_worse():
    assert Watch().until_it_speaks(new=20, old=80, errors=(0.0, 0.1), refused=(0.1, 0.0)) is None


def test_few_requests_are_compared_though_no_look_has_answers_of_both():
    watch = Watch()
    for turn in range(400):
        new = turn % 20 == 0
        if watch.look(new=int(new), old=int(not new), refused=(0.8, 0.0)):
            break
    assert watch.verdict.guard == "client_errors"
    for seed in range(5):
        alike = Watch(seed=seed)
        for turn in range(400):
            new = turn % 20 == 0
            assert alike.look(new=int(new), old=int(not new), refused=(0.9, 0.9)) is None


def test_without_the_old_one_beside_it_only_a_majority_of_client_errors_speaks():
    """The clients may have changed: at 100 % of the traffic there is nothing to compare with."""
    watch = Watch()
    watch.look(old=500)
    assert watch.until_it_speaks(new=5, refused=(0.8, 0.0), looks=30) is not None
    assert watch.verdict.guard == "client_errors"
    assert Watch().until_it_speaks(new=50, refused=(0.3, 0.0)) is None
    used_to_it = Watch()
    used_to_it.look(old=500, refused=(0.0, 0.9))
    assert used_to_it.until_it_speaks(new=50, refused=(0.9, 0.0)) is None


@pytest.mark.parametrize("traffic", [{"sticky": "user"}, {"headers": [{"header": "x-beta", "value": "yes"}]}])
def test_where_senders_stay_with_a_version_both_see_other_traffic(traffic):
    assert Watch(traffic=traffic).until_it_speaks(new=20, old=80, refused=(0.2, 0.0)) is None
    watch = Watch(traffic=traffic)
    assert watch.until_it_speaks(new=5, old=2000, refused=(0.9, 0.0)) is not None
    assert watch.verdict.guard == "client_errors"


def test_of_two_hundred_releases_with_bad_clients_at_most_one_in_fifty_goes_back():
    back = 0
    for seed in range(200):
        watch = Watch(seed=seed, slower="0")
        back += watch.until_it_speaks(new=5, old=95, refused=(0.05, 0.05), looks=40) is not None
    assert back <= 4


def test_an_old_version_that_refuses_most_is_no_measure_of_latency():
    """A router of an earlier version, or Envoy, also counts the latency of refused answers."""
    for fast in ({0.001: 90}, {0.001: 10}):
        watch = Watch()
        for _ in range(60):
            before = watch.counts[1]
            refused = replace(
                before,
                answered=before.answered + 90,
                client_errors=before.client_errors + 80,
                latency=tuple(one + more for one, more in zip(before.latency, latency_bars(fast), strict=True)),
            )
            watch.counts[1] = refused
            assert watch.look(new=10, took=(0.05, FAST)) is None
        assert not any(name.startswith("slower") for name in watch.rollout.marks)
    # Its latency before it broke is forgotten as well.
    watch = Watch()
    watch.look(old=500, took=(FAST, 0.001))
    assert "slower.old" in watch.rollout.marks
    watch.look(new=10, old=5000, refused=(0.0, 0.9), took=(0.05, 0.001))
    assert "slower.old" not in watch.rollout.marks


def test_client_errors_are_said_in_sentences_where_there_are_any():
    watch = Watch()
    for _ in range(10):
        watch.look(new=10, old=90, refused=(0.1, 0.1))
    _, client, _ = rollout_guard.findings(watch.service, watch.rollout)
    assert client.startswith("client errors: ")
    assert "of r1's were client errors or failures" in client


def test_a_metric_that_is_worse_for_answers_that_fail_names_these_as_the_cause():
    """Half of the evidence suffices for naming the cause: the release is rolled back in any case."""
    watch = Watch(metric={"name": "clicks"})
    assert watch.until_it_speaks(new=40, old=80, errors=(0.3, 0.0), good=(0.5, 0.95)) is not None
    assert watch.verdict.guard == "errors"
    assert "of r2's answers failed" in watch.verdict.reason
    assert "clicks of r2 is" in watch.verdict.reason
    worse = Watch(metric={"name": "clicks"})
    assert worse.until_it_speaks(new=20, old=80, good=(0.5, 0.95)) is not None
    assert worse.verdict.guard == "metric"
