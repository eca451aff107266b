"""Pages are valid and load nothing; curves are where their numbers are; data has the keys that programs rely on."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from fairway.simulation.placement.placement_result import ChurnResult, DecisionSpeed, PlacementResult, RejectionCount
from fairway.simulation.queue.free_gpus import EqualNodes
from fairway.simulation.queue.queue_replay import replay
from fairway.simulation.queue.queue_result import QueueResult
from fairway.simulation.queue.recorded_job import RecordedJob
from fairway.simulation.report import axis as report_axis
from fairway.simulation.report import table as report_table
from fairway.simulation.report.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, ChartLine, LineChart, draw
from fairway.simulation.report.chart_page import ChartPage, side_by_side, write_page
from fairway.simulation.report.result_data import figures
from fairway.simulation.report.simulation_page import churn_page, distribution, placement_page, queue_page, waits_of
from fairway.views.text.table import table

SVG = "{http://www.w3.org/2000/svg}"
HTML = "{http://www.w3.org/1999/xhtml}"
PACE = DecisionSpeed(100, 12345.67, 40.0, 300.0)


def a_placement(policy: str = "fairway") -> PlacementResult:
    curve = {at: min(float(at), 96.0) for at in range(131)}
    fragmentation = {at: at / 2 for at in range(131)}
    return PlacementResult(
        policy, "given", 10, 80, curve, fragmentation, 96.0, {"share": RejectionCount(50, 5), "1-gpu": RejectionCount(9, 0)}, PACE
    )


def a_churn(policy: str = "fairway") -> ChurnResult:
    series = [(number / 10, 90.0 + number % 3) for number in range(50)]
    return ChurnResult(policy, "learned", 1.1, 7, 91.23456, 12.0, {"cpu": RejectionCount(3, 0)}, PACE, series)


def a_queue(policy: str = "fifo") -> QueueResult:
    entries = [RecordedJob(float(number), 1 + number % 4, 50.0 + number) for number in range(40)]
    return replay(entries, EqualNodes(2, 4), policy)


@pytest.mark.parametrize(
    ("results", "make"),
    [
        ([a_placement(), a_placement("<fgd> & co")], placement_page),
        ([a_churn(), a_churn("fgd")], churn_page),
        ([a_queue(), a_queue("srtf-oracle")], queue_page),
    ],
)
def test_a_page_is_well_formed_and_stands_alone(results: list, make) -> None:
    text = write_page(make(results, {"pods from": "a & b.csv"}), "fairway simulate --x '<y>'")
    root = ElementTree.fromstring(text)
    addresses = set(re.findall(r"[a-z]+://[^\"'\s<]+", text))
    assert addresses == {"http://www.w3.org/1999/xhtml", "http://www.w3.org/2000/svg"}
    assert not {element.tag.removeprefix(HTML) for element in root.iter()} & {"script", "link", "img", "iframe"}
    charts = list(root.iter(f"{SVG}svg"))
    assert charts
    for chart in charts:
        assert [path.findtext(f"{SVG}title") for path in chart.iter(f"{SVG}path")] == [
            result.policy for result in reversed(results)
        ]
        words = [element.text for element in chart.iter(f"{SVG}text")]
        assert {result.policy for result in results} <= set(words)
        assert len(words) > 8


def test_a_page_has_the_plots_that_were_promised() -> None:
    titles = [chart.title for chart in placement_page([a_placement()], {}).charts]
    assert titles == ["GPUs allocated", "GPUs allocated at high load", "Fragmentation"]
    assert [chart.title for chart in queue_page([a_queue()], {}).charts] == ["Time to completion", "Queueing", "Utilisation"]


def test_both_kinds_of_screens_are_thought_of() -> None:
    text = write_page(ChartPage("t", "s"))
    assert "prefers-color-scheme: dark" in text
    assert "color-scheme: light dark" in text


def places(drawn: str) -> list[tuple[float, float]]:
    (path,) = ElementTree.fromstring(drawn).iter(f"{SVG}path")
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path.attrib["d"])]


def test_a_curve_lies_where_its_numbers_say() -> None:
    axis = report_axis.linear(0.0, 100.0)
    drawn = draw(LineChart("t", "", axis, axis, "x", "y", (ChartLine("a", [(0.0, 0.0), (50.0, 100.0), (100.0, 25.0)]),)))
    top, bottom, width = TOP, HEIGHT - BOTTOM, WIDTH - LEFT - RIGHT
    wanted = [(LEFT, bottom), (LEFT + width / 2, top), (LEFT + width, bottom - 0.25 * (bottom - top))]
    assert [*sum(places(drawn), ())] == pytest.approx([*sum(wanted, ())], abs=0.06)


def test_points_amid_a_straight_line_are_left_out() -> None:
    axis = report_axis.linear(0.0, 10.0)
    flat = [(float(at), 5.0) for at in range(11)]
    assert len(places(draw(LineChart("t", "", axis, axis, "x", "y", (ChartLine("a", flat),))))) == 2


def test_a_legend_takes_as_many_rows_as_it_needs() -> None:
    axis = report_axis.linear(0.0, 1.0)
    lines = tuple(ChartLine(f"a-policy-with-a-name-{number}", [(0.0, 0.0), (1.0, 1.0)]) for number in range(12))
    root = ElementTree.fromstring(draw(LineChart("t", "", axis, axis, "x", "y", lines)))
    legend = [element for element in root.iter(f"{SVG}text") if element.get("class") == "legend"]
    assert len(legend) == 12
    assert len({element.get("y") for element in legend}) == 4
    assert max(float(element.get("x", "0")) + 7 * len(element.text or "") for element in legend) < WIDTH
    dashed = [path for path in root.iter(f"{SVG}path") if path.get("stroke-dasharray")]
    assert len(dashed) == 4


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0.0, 100.0, ["0", "20", "40", "60", "80", "100"]), (90.2, 96.2, ["90", "91", "92", "93", "94", "95", "96", "97"])],
)
def test_marks_are_round(low: float, high: float, ticks: list[str]) -> None:
    assert [text for _, text in report_axis.linear(low, high).ticks] == ticks


def test_axes_hold_what_is_drawn_on_them() -> None:
    assert [text for _, text in report_axis.linear(0.0, 0.07).ticks][1] == "0.01"
    exact = report_axis.linear(85.0, 131.0, " %", exact=True)
    assert (exact.low, exact.high, exact.ticks[0]) == (85.0, 131.0, (90.0, "90 %"))
    scale = report_axis.linear(5.0, 5.0)
    assert scale.low < 5.0 < scale.high
    times = report_axis.moments(70.0, 3 * 86400.0)
    assert (times.ticks[0][1], times.ticks[-1][1]) == ("1 min", "1 week")
    assert [times.part(value) for value in (1.0, 60.0, 7 * 86400.0, 1e12)] == [0.0, 0.0, 1.0, 1.0]
    assert len(report_axis.moments(0.0, 0.5).ticks) == 2
    assert len(report_axis.moments(1e12, 1e13).ticks) == 2


def test_a_distribution_rises_from_the_smallest_to_all() -> None:
    points = distribution([float(number) for number in range(1000, 0, -1)])
    assert points[0] == (1.0, 0.1)
    assert points[-1] == (1000.0, 100.0)
    assert points == sorted(points)
    assert len(points) <= 201
    assert all(percent == pytest.approx(value / 10) for value, percent in points)
    assert distribution([3.0]) == [(3.0, 100.0)]


def test_waits_are_what_a_job_was_there_beyond_its_run() -> None:
    outcome = replay([RecordedJob(0.0, 4, 100.0), RecordedJob(10.0, 4, 50.0)], EqualNodes(1, 4), "fifo")
    assert sorted(waits_of(outcome)) == [0.0, 90.0]


def test_placement_data_has_the_keys_that_programs_lean_on() -> None:
    one = figures([a_placement()])
    assert {"policy", "curve", "decisions_per_second", "p99_us"} <= set(one)
    curve = one["curve"]
    assert isinstance(curve, dict)
    assert {mark: curve[mark] for mark in ("95", "100", "110", "120", "130")} == {
        "95": 95.0, "100": 96.0, "110": 96.0, "120": 96.0, "130": 96.0,
    }  # fmt: skip
    assert one["kinds"] == {"share": {"arrived": 50, "rejected": 5}, "1-gpu": {"arrived": 9, "rejected": 0}}
    assert figures([a_churn()])["allocation"] == 91.2346


def test_queue_data_has_the_keys_that_programs_lean_on() -> None:
    keys = {"policy", "average_jct_h", "median_jct_h", "p99_jct_h", "average_wait_h", "utilisation", "preemptions"}
    assert keys <= set(figures([a_queue()]))


def test_several_policies_are_a_list_in_the_order_asked_for() -> None:
    both = figures([a_queue("srtf-oracle"), a_queue("fifo")])
    assert list(both) == ["policies"]
    assert [one["policy"] for one in both["policies"]] == ["srtf-oracle", "fifo"]  # type: ignore[index, attr-defined]


def test_tables_have_a_row_a_policy() -> None:
    shown = table(*report_table.placement_table([a_placement(), a_placement("fgd")], wide=True))
    assert shown.splitlines()[0].split()[:4] == ["POLICY", "@95%", "@100%", "@110%"]
    assert shown.splitlines()[2].startswith("fgd      95.00  96.00  96.00")
    assert "5 of 50" in shown
    assert "12,346" in shown
    assert table(*report_table.churn_table([a_churn()])).splitlines()[1].split()[:5] == ["fairway", "1.1", "7", "91.23", "12.00"]
    wide = table(*report_table.queue_table([a_queue()], wide=True)).splitlines()
    assert wide[0].split()[-2:] == ["JOBS", "NODES"]
    assert wide[1].split()[-2:] == ["40", "2x4"]


def test_titles_name_few_and_count_many() -> None:
    assert side_by_side(["a"]) == "a"
    assert side_by_side(["a", "b"]) == "a against b"
    assert side_by_side(["a", "b", "c", "d"]) == "a against b, c and d"
    assert side_by_side(["a", "b", "c", "d", "e"]) == "a against 4 others"
