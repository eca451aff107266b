"""Cases of requests that no client sends, and of routes that only web pages and other programs use."""

from __future__ import annotations

from mlflow_cases.table import Place, bad_request, case

BULK = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"


@case("REST experiments/create", "fields of a wrong kind")
def _(at: Place) -> None:
    for body, words in (
        ({"name": 123}, "Invalid value 123 for parameter 'name'"),
        ({}, "Missing value for required parameter 'name'"),
        ({"name": at.name(), "artifact_location": 9.0}, "Invalid value 9.0 for parameter 'artifact_location'"),
        ({"name": at.name(), "tags": "5"}, "Invalid value \"5\" for parameter 'tags'"),
    ):
        bad_request(at.ask("POST", "experiments/create", body), words)


@case("REST runs/log-metric", "fields of a wrong kind")
def _(at: Place) -> None:
    good = {"run_id": at.run(), "key": "m", "value": 41, "timestamp": 59, "step": 26}
    for change, words in (
        ({"run_id": 31}, "Invalid value 31 for parameter 'run_id' supplied"),
        ({"key": 31}, "Invalid value 31 for parameter 'key' supplied"),
        ({"step": "foo"}, "Invalid value \"foo\" for parameter 'step' supplied"),
        ({"timestamp": "foo"}, "Invalid value \"foo\" for parameter 'timestamp' supplied"),
        ({"run_id": None}, "Missing value for required parameter 'run_id'"),
        ({"key": None}, "Missing value for required parameter 'key'"),
        ({"value": None}, "Missing value for required parameter 'value'"),
        ({"timestamp": None}, "Missing value for required parameter 'timestamp'"),
    ):
        bad_request(at.ask("POST", "runs/log-metric", {**good, **change}), words)
    assert at.ask("POST", "runs/log-metric", good).json() == {}


@case("REST runs/log-parameter", "fields of a wrong kind")
def _(at: Place) -> None:
    run = at.run()
    bad_request(
        at.ask("POST", "runs/log-parameter", {"run_id": 31, "key": "p", "value": "1"}), "Invalid value 31 for parameter 'run_id'"
    )
    bad_request(
        at.ask("POST", "runs/log-parameter", {"run_id": run, "key": 31, "value": "1"}), "Invalid value 31 for parameter 'key'"
    )


@case("REST runs/set-tag", "fields of a wrong kind, and run_uuid")
def _(at: Place) -> None:
    run = at.run()
    bad_request(
        at.ask("POST", "runs/set-tag", {"run_id": 31, "key": "t", "value": "1"}), "Invalid value 31 for parameter 'run_id'"
    )
    bad_request(
        at.ask("POST", "runs/set-tag", {"run_id": run, "key": "t", "value": 41}), "Invalid value 41 for parameter 'value'"
    )
    bad_request(at.ask("POST", "runs/set-tag", {"run_id": run, "value": "1"}), "Missing value for required parameter 'key'")
    assert at.ask("POST", "runs/set-tag", {"run_uuid": run, "key": "t", "value": "1"}).status_code == 200


@case("REST runs/log-batch", "fields of a wrong kind")
def _(at: Place) -> None:
    run = at.run()
    for name in ("metrics", "params", "tags"):
        bad_request(
            at.ask("POST", "runs/log-batch", {"run_id": run, name: "foo"}),
            f"Invalid value \"foo\" for parameter '{name}' supplied",
        )
    bad_request(at.ask("POST", "runs/log-batch", {"run_id": run, "metrics": [{"key": "mae", "value": 2.5}]}), "timestamp")
    good = {"run_id": run, "metrics": [{"key": "mae", "value": 2.5, "timestamp": 123456789}]}
    assert at.ask("POST", "runs/log-batch", good).status_code == 200


@case("REST runs/log-batch", "limits")
def _(at: Place) -> None:
    run = at.run()
    pair, metric = {"value": "1"}, {"value": 1, "timestamp": 1, "step": 1}
    for name, count in (("params", 101), ("tags", 101), ("metrics", 1001)):
        values = [{"key": f"k{number}", **(metric if name == "metrics" else pair)} for number in range(count)]
        bad_request(at.ask("POST", "runs/log-batch", {"run_id": run, name: values}), "at most")
    assert at.client.get_run(run).data.params == {}


@case("REST runs/log-inputs", "fields that are missing")
def _(at: Place) -> None:
    datasets = [{"dataset": {"name": "n", "digest": "d", "source_type": "s", "source": "s"}, "tags": []}]
    bad_request(at.ask("POST", "runs/log-inputs", {"datasets": datasets}), "Missing value for required parameter 'run_id'")


@case("REST runs/create", "fields of a wrong kind")
def _(at: Place) -> None:
    made = at.experiment()
    bad_request(
        at.ask("POST", "runs/create", {"experiment_id": made, "start_time": "foo"}),
        "Invalid value \"foo\" for parameter 'start_time'",
    )
    bad_request(at.ask("POST", "runs/create", {"experiment_id": made, "run_name": 5}), "Invalid value 5 for parameter 'run_name'")


@case("REST metrics/get-history", "max_results and page_token")
def _(at: Place) -> None:
    run = at.run()
    for step in range(5):
        at.client.log_metric(run, "m", float(step), timestamp=step, step=step)
    body, found = {"run_id": run, "metric_key": "m", "max_results": 2}, []
    while True:
        answer = at.ask("GET", "metrics/get-history", body).json()
        found += [each["step"] for each in answer.get("metrics", [])]
        assert len(answer.get("metrics", [])) <= 2
        if not answer.get("next_page_token"):
            break
        body["page_token"] = answer["next_page_token"]
    assert [int(each) for each in found] == [0, 1, 2, 3, 4]
    bad_request(at.ask("GET", "metrics/get-history", {**body, "max_results": 0}), "max_results")


@case("REST metrics/get-history-bulk", "what is no request")
def _(at: Place) -> None:
    bad_request(at.ask("GET", BULK, {"metric_key": "k"}), "must specify at least one run_id")
    bad_request(
        at.ask("GET", BULK, {"run_id": [f"id_{number}" for number in range(1000)], "metric_key": "k"}), "cannot specify more than"
    )
    bad_request(at.ask("GET", BULK, {"run_id": ["1"]}), "must specify a metric_key")


@case("REST metrics/get-history-bulk", "of several runs, in order, and max_results")
def _(at: Place) -> None:
    made = at.experiment()
    runs = sorted(at.run(made) for _ in range(3))
    values = [(1, 2, 10.0), (1, 3, 11.0), (1, 3, 12.0), (2, 3, 12.0)]
    for run in runs[:2]:
        for stamp, step, value in values:
            at.client.log_metric(run, "m", value, timestamp=stamp, step=step)
    answer = at.ask("GET", BULK, {"run_id": runs, "metric_key": "m"}).json()["metrics"]
    expected = [(run, *each) for run in runs[:2] for each in values]
    assert [(each["run_id"], each["timestamp"], each["step"], each["value"]) for each in answer] == expected
    answer = at.ask("GET", BULK, {"run_id": runs[:1], "metric_key": "m", "max_results": 2}).json()["metrics"]
    assert [each["value"] for each in answer] == [10.0, 11.0]


@case("REST metrics/get-history-bulk-interval", "what is no request")
def _(at: Place) -> None:
    path = f"{BULK}-interval"
    for body, words in (
        ({"metric_key": "k"}, "Missing value for required parameter 'run_ids'"),
        ({"run_ids": [f"id_{number}" for number in range(1000)], "metric_key": "k"}, "must specify at most 100 run_ids"),
        ({"run_ids": ["1"], "metric_key": "k", "max_results": 0}, "max_results must be between 1 and 2500"),
        ({"run_ids": ["1"], "metric_key": ""}, "Missing value for required parameter 'metric_key'"),
        ({"run_ids": ["1"], "max_results": 5}, "Missing value for required parameter 'metric_key'"),
        ({"run_ids": ["1"], "metric_key": "k", "start_step": 1, "end_step": 0}, "end_step must be greater than start_step"),
        ({"run_ids": ["1"], "metric_key": "k", "start_step": 1}, "both must be specified"),
    ):
        bad_request(at.ask("GET", path, body), words)


@case("REST metrics/get-history-bulk-interval", "max_results, start_step, end_step")
def _(at: Place) -> None:
    path, made = f"{BULK}-interval", at.experiment()
    runs = [at.run(made), at.run(made)]
    for run, count in zip(runs, (10, 20), strict=True):
        for step in range(count):
            at.client.log_metric(run, "m", 1.0, timestamp=1, step=step)

    def steps(**body: object) -> list[tuple[int, int]]:
        answer = at.ask("GET", path, {"metric_key": "m", **body}).json()["metrics"]
        return [(runs.index(each["run_id"]), int(each["step"])) for each in answer]

    assert steps(run_ids=runs[:1], max_results=5) == [(0, step) for step in (0, 2, 4, 6, 9)]
    assert steps(run_ids=runs[:1], max_results=5, start_step=0, end_step=4) == [(0, step) for step in range(5)]
    both = [(0, step) for step in (0, 2, 4, 6, 9)] + [(1, step) for step in (0, 4, 8, 12, 19)]
    assert sorted(steps(run_ids=runs, max_results=5)) == both


@case("REST experiments/search-datasets", "what is no request, and what is found")
def _(at: Place) -> None:
    path = "/ajax-api/2.0/mlflow/experiments/search-datasets"
    bad_request(at.ask("POST", path, {}), "must specify at least one experiment_id")
    bad_request(at.ask("POST", path, {"experiment_ids": [f"id_{number}" for number in range(1000)]}), "cannot specify more than")
    made = at.experiment()
    dataset = {"name": "n", "digest": "d", "source_type": "s", "source": "s"}
    tags = [{"key": "mlflow.data.context", "value": "training"}]
    for _ in range(2):
        body = {"run_id": at.run(made), "datasets": [{"dataset": dataset, "tags": tags}]}
        assert at.ask("POST", "runs/log-inputs", body).status_code == 200
    found = at.ask("POST", path, {"experiment_ids": [made]}).json()["dataset_summaries"]
    assert found == [{"experiment_id": made, "name": "n", "digest": "d", "context": "training"}]


@case("REST runs/search", "max_results")
def _(at: Place) -> None:
    body = {"experiment_ids": [at.experiment()], "max_results": 123456789}
    bad_request(at.ask("POST", "runs/search", body), "Invalid value 123456789 for parameter 'max_results' supplied")


@case("REST registered-models", "fields that are missing")
def _(at: Place) -> None:
    for method, path, body, word in (
        ("POST", "registered-models/create", {}, "name"),
        ("POST", "registered-models/rename", {"name": "x"}, "new_name"),
        ("GET", "registered-models/get", {}, "name"),
        ("POST", "registered-models/set-tag", {"name": "x"}, "key"),
        ("POST", "model-versions/create", {"name": "x"}, "source"),
        ("GET", "model-versions/get", {"name": "x"}, "version"),
        ("POST", "model-versions/transition-stage", {"name": "x", "version": "1"}, "stage"),
        ("POST", "registered-models/alias", {"name": "x", "version": "1"}, "alias"),
    ):
        bad_request(at.ask(method, path, body), f"Missing value for required parameter '{word}'")


@case("REST artifacts", "ways out of the folder of a run")
def _(at: Place) -> None:
    run = at.run()
    at.client.log_text(run, "x", "a.txt")
    for path in ("../path", "a/../../b", "/etc/passwd"):
        answer = at.ask("GET", "artifacts/list", {"run_id": run, "path": path})
        assert answer.status_code == 400, answer.text
        assert answer.json()["error_code"] == "INVALID_PARAMETER_VALUE"


@case("REST anything else", "an unknown route, and a body that is no JSON")
def _(at: Place) -> None:
    assert at.ask("GET", "nothing/here").status_code == 404
    assert at.ask("POST", "runs/create", None).status_code in (200, 400, 404)
