"""Pages of metrics: rendered, read and merged, compared with the parser of prometheus_client."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from fairway.serving.exposition.metric_accumulator import MetricAccumulator
from fairway.serving.exposition.metric_family import MetricFamily, accepts_openmetrics, render
from fairway.serving.exposition.text_parser import read

ODD = 'a"b\\c\nd,e}f é'


def page() -> list[MetricFamily]:
    total = MetricFamily("fairway_requests_total", "counter", 'Answers "by" status\\.\nTwo lines.')
    total.add(3, ("code", "200"), ("path", ODD))
    foreign = MetricFamily("nv_inference_request_success", "counter", "Triton's name.")
    foreign.add(3.0, ("model", "m"))
    seconds = MetricFamily("request_predict_seconds", "histogram", "Time.")
    seconds.add_histogram(("0.1", "1"), (1, 2, 3), 4.5, ("model_name", "m"))
    gauge = MetricFamily("fairway_queue_requests", "gauge", "Waiting.")
    gauge.add(float("nan"))
    return [total, foreign, seconds, gauge]


def values(text: bytes, *, openmetrics: bool) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = list((read_openmetrics if openmetrics else read_text)(text.decode()))
    assert len({family.name for family in families}) == len(families)
    return {(sample.name, frozenset(sample.labels.items())): sample.value for family in families for sample in family.samples}


@pytest.mark.parametrize("openmetrics", [False, True])
def test_a_page_is_valid_and_its_names_are_equal_in_both_forms(openmetrics: bool) -> None:
    found = values(render(page(), openmetrics=openmetrics), openmetrics=openmetrics)
    assert found[("fairway_requests_total", frozenset({("code", "200"), ("path", ODD)}))] == 3
    # The parser of prometheus_client itself appends `_total` to a counter of 0.0.4 that lacks it; Prometheus does not.
    foreign = "nv_inference_request_success" + ("" if openmetrics else "_total")
    assert found[(foreign, frozenset({("model", "m")}))] == 3
    assert found[("request_predict_seconds_bucket", frozenset({("model_name", "m"), ("le", "+Inf")}))] == 6
    assert found[("request_predict_seconds_sum", frozenset({("model_name", "m")}))] == 4.5


def test_what_is_rendered_is_read_again() -> None:
    families = page()[:3]
    assert read(render(families, openmetrics=False)) == families


@given(
    some.text(max_size=30).filter(lambda text: "\r" not in text and all(ord(each) not in range(0xD800, 0xE000) for each in text))
)
def test_any_label_comes_through(value: str) -> None:
    family = MetricFamily("a", "gauge")
    family.add(1, ("label", value))
    assert read(render([family], openmetrics=False))[0].samples == family.samples


@pytest.mark.parametrize("line", ["a b", "{}", 'a{b="c} 1', "a{b=c} 1", "1a 1", 'a{b="c"d="e"} 1', "<html>", "a 1 x"])
def test_what_is_no_metric_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="line"):
        read(f"# TYPE a counter\n{line}\n".encode())


def test_a_page_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="samples"):
        read(b"a 1\n" * 20_001)
    with pytest.raises(ValueError, match="bytes"):
        read(b"#" * (4 * 1024 * 1024 + 1))


def counted(value: float, name: str = "c_total", kind: str = "counter") -> list[MetricFamily]:
    family = MetricFamily(name, kind)
    family.add(value)
    return [family]


def total(of: MetricAccumulator, name: str = "c_total") -> float:
    return sum(value for family in of.families() if family.name == name for _, _, value in family.samples)


def test_counters_are_added_and_never_fall() -> None:
    both = MetricAccumulator()
    both.observe("a", (("revision", "1"),), counted(5))
    both.observe("b", (("revision", "1"),), counted(7))
    assert total(both) == 12
    both.miss("a")
    both.forget("b")
    assert total(both) == 12
    both.observe("a", (("revision", "1"),), counted(6))
    assert total(both) == 13
    both.observe("a", (("revision", "1"),), counted(2))  # another process with the same name
    assert total(both) == 15


def test_a_replica_that_counted_before_adds_only_what_comes() -> None:
    accumulator = MetricAccumulator()
    accumulator.observe("a", (), counted(1000), baseline=True)
    assert total(accumulator) == 0
    accumulator.observe("a", (), counted(1003), baseline=True)
    assert total(accumulator) == 3


def test_gauges_are_those_of_the_replicas_that_answer() -> None:
    accumulator = MetricAccumulator()
    for name in ("a", "b"):
        accumulator.observe(name, (), [*counted(2, "waiting", "gauge"), *counted(0.5, "nv_gpu_utilization", "gauge")])
    assert (total(accumulator, "waiting"), total(accumulator, "nv_gpu_utilization")) == (4, 0.5)
    accumulator.miss("a")
    assert total(accumulator, "waiting") == 2


def test_a_replica_cannot_pass_for_another_and_bad_numbers_add_nothing() -> None:
    accumulator = MetricAccumulator()
    family = MetricFamily("c_total", "counter")
    family.add(1, ("revision", "9"))
    family.add(float("nan"), ("x", "y"))
    family.add(-3, ("x", "z"))
    accumulator.observe("a", (("revision", "1"),), [family, *counted(5, "c_total", "gauge")])
    (merged,) = accumulator.families()
    assert merged.samples == [("c_total", (("revision", "1"),), 1)]


def test_the_first_meaning_of_a_name_stays() -> None:
    accumulator = MetricAccumulator()
    accumulator.observe("a", (), counted(5))
    accumulator.observe("b", (), counted(7, kind="gauge"))
    assert total(accumulator) == 5


def test_openmetrics_is_for_those_who_ask_for_it() -> None:
    assert accepts_openmetrics(b"application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert not accepts_openmetrics(b"text/plain")
    assert not accepts_openmetrics(None)
