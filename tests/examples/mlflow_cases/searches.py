"""Cases of searches among runs."""

from __future__ import annotations

import math

from mlflow.entities import Dataset, DatasetInput, InputTag, ViewType

from mlflow_cases.table import Place, case, pages, refused


def _named(at: Place, experiment: str, text: str = "", **more: object) -> list[str]:
    return [each.info.run_name for each in at.client.search_runs([experiment], text, **more)]


def _some(at: Place) -> str:
    """Create runs a, b, c; the oldest first."""
    made = at.experiment()
    for number, (name, acc, lr, team) in enumerate((("a", 0.5, "0.1", "nlp"), ("b", 0.9, "0.2", "cv"), ("c", None, "0.3", None))):
        run = at.run(made, start_time=1000 + number, run_name=name, tags={"team": team} if team else {})
        at.client.log_param(run, "lr", lr)
        if acc is not None:
            at.client.log_metric(run, "acc", acc)
            at.client.log_metric(run, "val loss", -acc)
    return made


@case("search_runs", "experiment_ids, the newest first")
def _(at: Place) -> None:
    first, second = _some(at), at.experiment("other")
    at.run(second, run_name="d", start_time=5)
    assert _named(at, first) == ["c", "b", "a"]
    assert [each.info.run_name for each in at.client.search_runs([first, second])] == ["c", "b", "a", "d"]
    assert at.client.search_runs([]) == []


@case("search_runs", "filter_string on metrics")
def _(at: Place) -> None:
    made = _some(at)
    for text, expected in (
        ("metrics.acc > 0.5", ["b"]),
        ("metric.acc >= 0.5", ["b", "a"]),
        ("metrics.acc < 0.9 and metrics.acc != 0", ["a"]),
        ("metrics.acc = 0.9", ["b"]),
        ('metrics."val loss" <= -0.9', ["b"]),
        ("metrics.`val loss` > -1e0", ["b", "a"]),
        ("metrics.none > 0", []),
    ):
        assert _named(at, made, text) == expected, text


@case("search_runs", "filter_string on params")
def _(at: Place) -> None:
    made = _some(at)
    for text, expected in (
        ("params.lr = '0.1'", ["a"]),
        ("params.lr != '0.1'", ["c", "b"]),
        ("parameter.lr LIKE '0.%'", ["c", "b", "a"]),
        ('param."lr" ILIKE "0._"', ["c", "b", "a"]),
        ("params.none = '1'", []),
    ):
        assert _named(at, made, text) == expected, text


@case("search_runs", "filter_string on tags")
def _(at: Place) -> None:
    made = _some(at)
    for text, expected in (
        ("tags.team = 'nlp'", ["a"]),
        ("tag.team != 'nlp'", ["b"]),
        ("tags.team ILIKE 'N%'", ["a"]),
        ("tags.mlflow.runName = 'c'", ["c"]),
        ("tags.`mlflow.runName` LIKE '%'", ["c", "b", "a"]),
    ):
        assert _named(at, made, text) == expected, text


@case("search_runs", "filter_string IS NULL")
def _(at: Place) -> None:
    made = _some(at)
    assert _named(at, made, "tags.team IS NULL") == ["c"]
    assert _named(at, made, "tags.team IS NOT NULL") == ["b", "a"]
    assert _named(at, made, "params.none IS NULL AND params.lr IS NOT NULL") == ["c", "b", "a"]


@case("search_runs", "filter_string on attributes")
def _(at: Place) -> None:
    made = _some(at)
    first = at.client.search_runs([made], "attributes.run_name = 'a'")[0].info.run_id
    at.client.set_terminated(first, "FAILED", end_time=2000)
    for text, expected in (
        ("attributes.status = 'FAILED'", ["a"]),
        ("status != 'FAILED'", ["c", "b"]),
        ("attribute.start_time > 1000", ["c", "b"]),
        ("attributes.end_time = 2000", ["a"]),
        ("end_time < 3000", ["a"]),
        ("run_name LIKE '_'", ["c", "b", "a"]),
        (f"attributes.run_id = '{first}'", ["a"]),
        (f"run_id IN ('{first}', 'x')", ["a"]),
        (f"attr.run_id NOT IN ('{first}')", ["c", "b"]),
        ("attributes.`run name` = 'b'", ["b"]),
        ("attributes.created >= 1001", ["c", "b"]),
    ):
        assert _named(at, made, text) == expected, text


@case("search_runs", "filter_string on datasets")
def _(at: Place) -> None:
    made = _some(at)
    run = at.client.search_runs([made], "run_name = 'b'")[0].info.run_id
    tags = [InputTag("mlflow.data.context", "train")]
    at.client.log_inputs(run, [DatasetInput(Dataset("digits", "d1", "local", "s"), tags)])
    for text in (
        "dataset.name = 'digits'",
        "datasets.digest LIKE 'd%'",
        "dataset.context = 'train' and dataset.name IN ('digits', 'other')",
    ):
        assert _named(at, made, text) == ["b"], text
    assert _named(at, made, "dataset.name = 'other'") == []


@case("search_runs", "filter_string that is none")
def _(at: Place) -> None:
    made = _some(at)
    for text in (
        "metrics.acc > 'x'",
        "params.lr > '0.1'",
        "params.lr = 0.1",
        "attributes.color = 'x'",
        "acc = 1 or acc = 2",
        "metrics.acc ~ 1",
        "start_time LIKE '1%'",
        "dataset.color = 'x'",
        "status",
        "x.y = '1'",
    ):
        refused(lambda text=text: at.client.search_runs([made], text))


@case("search_runs", "filter_string with quotes and other letters")
def _(at: Place) -> None:
    made = at.experiment()
    at.run(made, run_name="it's ü", tags={"模型": "wert"})
    assert _named(at, made, 'run_name = "it\'s ü"') == ["it's ü"]
    assert _named(at, made, "tags.`模型` = 'wert'") == ["it's ü"]


@case("search_runs", "order_by")
def _(at: Place) -> None:
    made = _some(at)
    for order, expected in (
        (["metrics.acc"], ["a", "b", "c"]),
        (["metrics.acc DESC"], ["b", "a", "c"]),
        (["params.lr"], ["a", "b", "c"]),
        (["params.lr DESC"], ["c", "b", "a"]),
        (["attributes.start_time"], ["a", "b", "c"]),
        (["tags.team"], ["b", "a", "c"]),
        (["attribute.run_name DESC"], ["c", "b", "a"]),
        (["start_time DESC"], ["c", "b", "a"]),
        (["tags.none", "start_time ASC"], ["a", "b", "c"]),
    ):
        assert _named(at, made, order_by=order) == expected, order
    for wrong in (["metrics.acc UP"], ["color"], ["attributes.color ASC"]):
        refused(lambda wrong=wrong: at.client.search_runs([made], order_by=wrong))


@case("search_runs", "order_by a metric that is no number for some")
def _(at: Place) -> None:
    made = at.experiment()
    for number, (name, value) in enumerate((("x", math.nan), ("y", 1.0), ("z", math.inf), ("w", None), ("v", -math.inf))):
        run = at.run(made, run_name=name, start_time=number)
        if value is not None:
            at.client.log_metric(run, "m", value)
    assert _named(at, made, order_by=["metrics.m"]) == ["v", "y", "z", "x", "w"]
    assert _named(at, made, order_by=["metrics.m DESC"]) == ["z", "y", "v", "x", "w"]


@case("search_runs", "max_results and page_token")
def _(at: Place) -> None:
    made, runs = at.runs(*[1] * 10)
    for size, expected in ((4, 3), (5, 2), (10, 1), (100, 1)):
        found, count = pages(lambda token, size=size: at.client.search_runs([made], max_results=size, page_token=token))
        assert [each.info.run_id for each in found] == sorted(runs)
        assert count == expected
    for wrong in (123456789, 0, -1):
        refused(lambda wrong=wrong: at.client.search_runs([made], max_results=wrong))
    refused(lambda: at.client.search_runs([made], page_token="never given"))


@case("search_runs", "page_token with filter and order")
def _(at: Place) -> None:
    made, runs = at.runs(*range(1, 8))
    for run in runs[:5]:
        at.client.log_metric(run, "m", 1.0)
    found, count = pages(
        lambda token: at.client.search_runs([made], "metrics.m = 1", order_by=["start_time ASC"], max_results=2, page_token=token)
    )
    assert ([each.info.run_id for each in found], count) == (runs[:5], 3)


@case("search_runs", "run_view_type")
def _(at: Place) -> None:
    made = _some(at)
    at.client.delete_run(at.client.search_runs([made], "run_name = 'b'")[0].info.run_id)
    assert _named(at, made, run_view_type=ViewType.ACTIVE_ONLY) == ["c", "a"]
    assert _named(at, made, run_view_type=ViewType.DELETED_ONLY) == ["b"]
    assert _named(at, made, run_view_type=ViewType.ALL) == ["c", "b", "a"]
