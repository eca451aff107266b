# ruff: noqa: BLE001, PT017
"""Cases of runs: their fields."""

from __future__ import annotations

import math
import time

from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelInput, LoggedModelOutput, Metric, Param, RunTag

from mlflow_cases.table import Place, case, refused


@case("create_run", "experiment_id alone")
def _(at: Place) -> None:
    made = at.experiment()
    run = at.client.get_run(at.run(made))
    assert (run.info.experiment_id, run.info.status, run.info.lifecycle_stage) == (made, "RUNNING", "active")
    assert run.info.user_id == "unknown"
    assert run.info.run_name
    assert run.info.end_time is None


@case("create_run", "start_time, tags, run_name")
def _(at: Place) -> None:
    tags = {"mlflow.user": "ana", "mlflow.source.name": "t.py", "mlflow.parentRunId": "7", "my": "tag"}
    made = at.client.create_run(at.experiment(), start_time=456, run_name="my name ü", tags=tags)
    for run in (made, at.client.get_run(made.info.run_id)):
        assert (run.info.start_time, run.info.run_name, run.info.user_id) == (456, "my name ü", "ana")
        assert tags.items() <= run.data.tags.items()
        assert run.data.tags["mlflow.runName"] == "my name ü"


@case("create_run", "the name as a tag, and two names")
def _(at: Place) -> None:
    made = at.experiment()
    assert at.client.create_run(made, tags={"mlflow.runName": "by tag"}).info.run_name == "by tag"
    refused(lambda: at.client.create_run(made, run_name="one", tags={"mlflow.runName": "two"}), "INVALID_PARAMETER_VALUE", "one")


@case("create_run", "in an experiment that is not there")
def _(at: Place) -> None:
    refused(lambda: at.client.create_run("123456789"), "RESOURCE_DOES_NOT_EXIST")


@case("get_run", "one that is not there")
def _(at: Place) -> None:
    refused(lambda: at.client.get_run("f" * 32), "RESOURCE_DOES_NOT_EXIST", "not found")


@case("get_parent_run", "with and without")
def _(at: Place) -> None:
    made = at.experiment()
    parent = at.run(made)
    child = at.run(made, tags={"mlflow.parentRunId": parent})
    assert at.client.get_parent_run(child).info.run_id == parent
    assert at.client.get_parent_run(parent) is None


@case("log_metric", "key, value, timestamp, step")
def _(at: Place) -> None:
    run = at.run()
    at.client.log_metric(run, "metric", 123.456, timestamp=789, step=2)
    at.client.log_metric(run, "plain", 1)
    found = at.client.get_run(run).data
    assert found.metrics == {"metric": 123.456, "plain": 1.0}
    (point,) = at.client.get_metric_history(run, "metric")
    assert (point.key, point.value, point.timestamp, point.step) == ("metric", 123.456, 789, 2)
    assert at.client.get_metric_history(run, "plain")[0].step == 0


@case("log_metric", "values that are no numbers")
def _(at: Place) -> None:
    run = at.run()
    for key, value in (("nan", math.nan), ("inf", math.inf), ("-inf", -math.inf)):
        at.client.log_metric(run, key, value)
    found = at.client.get_run(run).data.metrics
    assert math.isnan(found["nan"])
    assert found["inf"] > 1.79e308
    assert found["-inf"] < -1.79e308


@case("log_metric", "negative and huge steps")
def _(at: Place) -> None:
    run = at.run()
    for step in (-5, 0, 2**53, 2**62):
        at.client.log_metric(run, "m", float(step), timestamp=1000, step=step)
    assert [each.step for each in at.client.get_metric_history(run, "m")] == [-5, 0, 2**53, 2**62]
    assert at.client.get_run(run).data.metrics["m"] == float(2**62)


@case("log_metric", "names that are allowed, and others")
def _(at: Place) -> None:
    run = at.run()
    for key in ("a/b", "with space", "dots.and-dashes_", "colon:x", "ünï"):
        at.client.log_metric(run, key, 1.0)
    for key in ("../up", "a/../b", "/abs", "what?", "a" * 251, ".", ""):
        refused(lambda key=key: at.client.log_metric(run, key, 1.0))


@case("log_metric", "the last by step, not by arrival")
def _(at: Place) -> None:
    run = at.run()
    for step, value in ((3, 0.3), (1, 0.1), (2, 0.2)):
        at.client.log_metric(run, "m", value, timestamp=step, step=step)
    assert at.client.get_run(run).data.metrics == {"m": 0.3}


@case("log_metric", "model_id, dataset_name, dataset_digest")
def _(at: Place) -> None:
    made = at.experiment()
    run = at.run(made)
    model = at.client.create_logged_model(made, "net", run)
    at.client.log_metric(run, "acc", 0.5, step=1, model_id=model.model_id, dataset_name="d", dataset_digest="1")
    at.client.log_metric(run, "acc", 0.75, step=2, model_id=model.model_id, dataset_name="d", dataset_digest="1")
    found = at.client.get_logged_model(model.model_id).metrics
    assert 0.75 in [each.value for each in found]
    last = next(each for each in found if each.value == 0.75)
    assert (last.key, last.dataset_name, last.dataset_digest, last.run_id) == ("acc", "d", "1", run)
    assert at.client.get_run(run).data.metrics == {"acc": 0.75}


@case("log_metric", "synchronous=False")
def _(at: Place) -> None:
    run = at.run()
    at.client.log_metric(run, "m", 1.0, synchronous=False).wait()
    assert at.client.get_run(run).data.metrics == {"m": 1.0}


@case("log_param", "values of all kinds")
def _(at: Place) -> None:
    run = at.run()
    values = {"text": "wert ü 模", "number": 3, "none": None, "list": [1, 2], "empty": "", "long": "x" * 6000}
    for key, value in values.items():
        at.client.log_param(run, key, value)
    assert at.client.get_run(run).data.params == {key: str(value) for key, value in values.items()}


@case("log_param", "keeps its first value")
def _(at: Place) -> None:
    run = at.run()
    at.client.log_param(run, "lr", "0.1")
    at.client.log_param(run, "lr", "0.1")
    refused(lambda: at.client.log_param(run, "lr", "0.2"))
    assert at.client.get_run(run).data.params == {"lr": "0.1"}


@case("log_param", "names that are none")
def _(at: Place) -> None:
    run = at.run()
    for key in ("", "../x", "a;b", "x" * 251):
        refused(lambda key=key: at.client.log_param(run, key, "1"))


@case("log_param", "a value that is too long", differs="an MLflow server cuts it to 6000 characters without an error")
def _(at: Place) -> None:
    run = at.run()
    refused(lambda: at.client.log_param(run, "long", "x" * 8001), "INVALID_PARAMETER_VALUE", "8000")


@case("log_param", "synchronous=False")
def _(at: Place) -> None:
    run = at.run()
    at.client.log_param(run, "p", "1", synchronous=False)
    deadline = time.monotonic() + 20
    while at.client.get_run(run).data.params != {"p": "1"}:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@case("set_tag", "is set, changed, empty, no text")
def _(at: Place) -> None:
    run = at.run()
    for value in ("one", "two", "", 12, "viele\nZeilen"):
        at.client.set_tag(run, "key", value)
        assert at.client.get_run(run).data.tags["key"] == str(value)
    at.client.set_tag(run, "key", "later", synchronous=False).wait()
    assert at.client.get_run(run).data.tags["key"] == "later"


@case("set_tag", "the name of the run")
def _(at: Place) -> None:
    run = at.run()
    at.client.set_tag(run, "mlflow.runName", "renamed")
    assert at.client.get_run(run).info.run_name == "renamed"


@case("delete_tag", "one that is there, and one that is not")
def _(at: Place) -> None:
    run = at.run(tags={"a": "1"})
    at.client.delete_tag(run, "a")
    assert "a" not in at.client.get_run(run).data.tags
    refused(lambda: at.client.delete_tag(run, "a"), "RESOURCE_DOES_NOT_EXIST", "No tag with name: a")
    refused(lambda: at.client.delete_tag("f" * 32, "a"), "RESOURCE_DOES_NOT_EXIST", "not found")


@case("log_batch", "metrics, params, tags")
def _(at: Place) -> None:
    run = at.run()
    at.client.log_batch(run, [Metric("m", 1.5, 789, 3)], [Param("p", "1"), Param("e", "")], [RunTag("t", "x"), RunTag("e", "")])
    found = at.client.get_run(run).data
    assert (found.metrics, found.params) == ({"m": 1.5}, {"p": "1", "e": ""})
    assert {"t": "x", "e": ""}.items() <= found.tags.items()
    at.client.log_batch(run, [Metric("late", 1.0, 1, 1)], synchronous=False).wait()
    assert at.client.get_run(run).data.metrics["late"] == 1.0


@case("log_batch", "a thousand metrics at once")
def _(at: Place) -> None:
    run = at.run()
    at.client.log_batch(run, [Metric("m", float(number), number, number) for number in range(1000)])
    assert [each.value for each in at.client.get_metric_history(run, "m")] == [float(number) for number in range(1000)]


@case("log_batch", "more than the server takes at once is cut up by the client or refused")
def _(at: Place) -> None:
    run = at.run()
    try:
        at.client.log_batch(run, params=[Param(f"p{number}", "1") for number in range(101)])
    except Exception as problem:
        assert "100" in str(problem)
        assert at.client.get_run(run).data.params == {}
    else:
        assert len(at.client.get_run(run).data.params) == 101


@case("log_batch", "a parameter twice")
def _(at: Place) -> None:
    run = at.run()
    refused(lambda: at.client.log_batch(run, params=[Param("p", "1"), Param("p", "2")]), "INVALID_PARAMETER_VALUE", "p")


@case("log_batch", "all or nothing", differs="an MLflow server keeps the metrics of a batch that it refuses")
def _(at: Place) -> None:
    run = at.run()
    at.client.log_param(run, "p", "1")
    refused(lambda: at.client.log_batch(run, [Metric("m", 1.0, 1, 1)], [Param("p", "2")]))
    assert at.client.get_run(run).data.metrics == {}


@case("get_metric_history", "in order, and none")
def _(at: Place) -> None:
    run = at.run()
    for stamp, step in ((30, 3), (10, 1), (20, 2)):
        at.client.log_metric(run, "m", float(step), timestamp=stamp, step=step)
    assert [(each.timestamp, each.step) for each in at.client.get_metric_history(run, "m")] == [(10, 1), (20, 2), (30, 3)]
    assert at.client.get_metric_history(run, "none") == []


@case("update_run", "status and name")
def _(at: Place) -> None:
    run = at.run()
    at.client.update_run(run, status="FINISHED", name="new name")
    found = at.client.get_run(run)
    assert (found.info.status, found.info.run_name, found.data.tags["mlflow.runName"]) == ("FINISHED", "new name", "new name")
    at.client.update_run(run, name="newer")
    assert (at.client.get_run(run).info.status, at.client.get_run(run).info.run_name) == ("FINISHED", "newer")


@case("set_terminated", "status and end_time")
def _(at: Place) -> None:
    first, second, third = at.run(), at.run(), at.run()
    at.client.set_terminated(first)
    at.client.set_terminated(second, "FAILED")
    at.client.set_terminated(third, "KILLED", end_time=99)
    info = at.client.get_run(first).info
    assert info.status == "FINISHED"
    assert info.end_time <= time.time() * 1000 + 1000
    assert at.client.get_run(second).info.status == "FAILED"
    assert (at.client.get_run(third).info.status, at.client.get_run(third).info.end_time) == ("KILLED", 99)


@case("delete_run", "hides it, and it takes no more")
def _(at: Place) -> None:
    made = at.experiment()
    run = at.run(made)
    at.client.set_tag(run, "t", "1")
    at.client.delete_run(run)
    assert at.client.get_run(run).info.lifecycle_stage == "deleted"
    assert at.client.search_runs([made]) == []
    for call in (
        lambda: at.client.log_metric(run, "m", 1.0),
        lambda: at.client.log_param(run, "p", "1"),
        lambda: at.client.set_tag(run, "t", "2"),
        lambda: at.client.delete_tag(run, "t"),
        lambda: at.client.log_batch(run, [Metric("m", 1.0, 1, 1)]),
    ):
        refused(call, "INVALID_PARAMETER_VALUE", "must be in the 'active' state")
    refused(lambda: at.client.delete_run("f" * 32), "RESOURCE_DOES_NOT_EXIST")


@case("restore_run", "shows it again")
def _(at: Place) -> None:
    run = at.run()
    at.client.delete_run(run)
    at.client.restore_run(run)
    assert at.client.get_run(run).info.lifecycle_stage == "active"
    at.client.log_metric(run, "m", 1.0)


@case("log_inputs", "datasets")
def _(at: Place) -> None:
    run = at.run()
    dataset = Dataset("name1", "digest1", "local", "source1", schema="{}", profile='{"rows": 2}')
    at.client.log_inputs(run, [DatasetInput(dataset, [InputTag("mlflow.data.context", "train")])])
    at.client.log_inputs(run, [DatasetInput(Dataset("name2", "digest2", "local", "source2"), [])])
    found = at.client.get_run(run).inputs.dataset_inputs
    assert {each.dataset.name for each in found} == {"name1", "name2"}
    first = next(each for each in found if each.dataset.name == "name1")
    assert (first.dataset.digest, first.dataset.source, first.dataset.profile) == ("digest1", "source1", '{"rows": 2}')
    assert [(tag.key, tag.value) for tag in first.tags] == [("mlflow.data.context", "train")]


@case("log_inputs", "models")
def _(at: Place) -> None:
    made = at.experiment()
    run = at.run(made)
    model = at.client.create_logged_model(made, "net", run)
    at.client.log_inputs(run, models=[LoggedModelInput(model.model_id)])
    assert [each.model_id for each in at.client.get_run(run).inputs.model_inputs] == [model.model_id]


@case("log_outputs", "models")
def _(at: Place) -> None:
    made = at.experiment()
    run = at.run(made)
    model = at.client.create_logged_model(made, "net", run)
    at.client.log_outputs(run, [LoggedModelOutput(model.model_id, 3)])
    assert [(each.model_id, each.step) for each in at.client.get_run(run).outputs.model_outputs] == [(model.model_id, 3)]
