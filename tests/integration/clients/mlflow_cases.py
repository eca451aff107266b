"""MLflow's scoring server: its own client, and every documented form of a request to /invocations."""

from __future__ import annotations

import inspect
import json
import math
from typing import Any

import numpy as np
from cases import REFUSED, Cases, refused, same

CASES = Cases()
FORMS = {
    "GET /ping", "GET /health", "GET /version", "dataframe_split", "dataframe_split.index", "dataframe_records", "instances",
    "inputs", "text/csv", "params", "charset", "content types", "errors",
}  # fmt: skip
HOUSE = {"rooms": 2, "area": 50.5, "city": "Oslo", "new": True}


class World:
    """The client, and plain requests."""

    def __init__(self, at: dict[str, str]) -> None:
        import requests
        from mlflow.pyfunc.scoring_server.client import ScoringServerClient

        self.at = at
        self.session = requests.Session()
        self.Client = ScoringServerClient

    def client(self, model: str = "m") -> Any:
        host, port = self.at[model].removeprefix("http://").split(":")
        return self.Client(host, port)

    def post(self, body: Any, model: str = "m", kind: str = "application/json") -> tuple[int, Any]:
        sent = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        found = self.session.post(f"{self.at[model]}/invocations", data=sent, headers={"Content-Type": kind})
        return found.status_code, json.loads(found.text)

    def close(self) -> None:
        self.session.close()


@CASES("ScoringServerClient.ping", "ScoringServerClient.wait_server_ready", "ScoringServerClient.get_version", "GET /ping",
       "GET /health", "GET /version")  # fmt: skip
def pages(world: World) -> None:
    world.client().ping()
    world.client().wait_server_ready(timeout=20)
    assert world.client().get_version(), "no version"
    for path in ("/ping", "/health", "/version"):
        same(world.session.get(f"{world.at['m']}{path}").status_code, 200)


@CASES("ScoringServerClient.invoke", "ScoringServerClient.invoke.data")
def a_data_frame(world: World) -> None:
    import pandas as pd

    frame = pd.DataFrame([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], columns=["a", "b", "c"])
    found = world.client().invoke(frame)
    same(found.get_predictions(predictions_format="ndarray").tolist(), [[2, 4, 6], [8, 10, 12]])
    same(found.get_predictions().shape, (2, 3))


@CASES("ScoringServerClient.invoke.data")
def a_data_frame_with_types(world: World) -> None:
    import pandas as pd

    found = world.client("table").invoke(pd.DataFrame([HOUSE, {**HOUSE, "rooms": 3, "new": False}]))
    frame = found.get_predictions()
    same(frame["price"].tolist(), [1250.5, 350.5])
    same(frame["label"].tolist(), ["in Oslo", "in Oslo"])


@CASES("ScoringServerClient.invoke.data")
def arrays(world: World) -> None:
    rows = np.array([[1, 2, 3]], np.float32)
    same(world.client().invoke(rows).get_predictions("ndarray").tolist(), [[2, 4, 6]])
    # A dictionary of arrays fails in the client itself (3.17.2 unpacks its keys); a string is sent as it is.
    text = json.dumps({"inputs": {"x": rows.tolist()}})
    same(world.client().invoke(text).get_predictions("ndarray").tolist(), [[2, 4, 6]])


@CASES("ScoringServerClient.invoke.params", "params", outcome=REFUSED)
def parameters(world: World) -> None:
    refused(lambda: world.client().invoke(np.zeros((1, 3)), params={"beam": 3}), Exception, "400", "beam", "leave params out")
    code, found = world.post({"inputs": [[1, 2, 3]], "params": {"beam": 3}})
    same([code, "beam" in found["error"]], [400, True])


@CASES("params")
def no_parameters(world: World) -> None:
    same(world.post({"inputs": [[1, 2, 3]], "params": {}}), (200, {"predictions": [[2, 4, 6]]}))


@CASES("dataframe_split")
def split(world: World) -> None:
    asked = {"dataframe_split": {"columns": ["a", "b", "c"], "data": [[1, 2, 3], [4, 5, 6]]}}
    same(world.post(asked), (200, {"predictions": [[2, 4, 6], [8, 10, 12]]}))
    same(world.post({"dataframe_split": {"data": [[1, 2, 3]]}}), (200, {"predictions": [[2, 4, 6]]}))
    named = {"dataframe_split": {"columns": list(HOUSE), "data": [list(HOUSE.values())]}}
    same(world.post(named, "table")[1], {"predictions": [{"price": 1250.5, "label": "in Oslo"}]})
    named = {"dataframe_split": {"columns": ["x"], "data": [[[1, 2, 3]], [[4, 5, 6]]]}}
    same(world.post(named)[1], {"predictions": [[2, 4, 6], [8, 10, 12]]})


@CASES("dataframe_split.index")
def split_with_an_index(world: World) -> None:
    same(world.post({"dataframe_split": {"columns": [0, 1, 2], "index": [5], "data": [[1, 2, 3]]}})[0], 200)


@CASES("dataframe_split")
def missing_values(world: World) -> None:
    body = b'{"dataframe_split": {"columns": ["a", "b", "c"], "data": [[1, null, NaN]]}}'
    code, found = world.post(body)
    same([code, found["predictions"][0][0], [math.isnan(each) for each in found["predictions"][0][1:]]], [200, 2.0, [True, True]])


@CASES("dataframe_records")
def records(world: World) -> None:
    same(world.post({"dataframe_records": [{"a": 1, "b": 2, "c": 3}]}), (200, {"predictions": [[2, 4, 6]]}))
    found = world.post({"dataframe_records": [HOUSE, dict(reversed(HOUSE.items()))]}, "table")[1]["predictions"]
    same([each["price"] for each in found], [1250.5, 1250.5])


@CASES("instances")
def instances(world: World) -> None:
    same(world.post({"instances": [[1, 2, 3]]}), (200, {"predictions": [[2, 4, 6]]}))
    same(world.post({"instances": [{"x": [1, 2, 3]}]}), (200, {"predictions": [[2, 4, 6]]}))


@CASES("inputs")
def inputs(world: World) -> None:
    same(world.post({"inputs": [[1, 2, 3]]}), (200, {"predictions": [[2, 4, 6]]}))
    same(world.post({"inputs": {"x": [[1, 2, 3]]}}), (200, {"predictions": [[2, 4, 6]]}))
    columns = {"rooms": [2], "area": [[50.5]], "city": ["Oslo"], "new": [True]}
    same(world.post({"inputs": columns}, "table")[1], {"predictions": {"price": [1250.5], "label": ["in Oslo"]}})


@CASES("inputs", "instances")
def large_tensors(world: World) -> None:
    rows = [[1.5, 2.5, 3.5]] * 20000
    for name in ("inputs", "instances"):
        code, found = world.post({name: rows})
        same([code, len(found["predictions"]), found["predictions"][-1]], [200, 20000, [3.0, 5.0, 7.0]])


@CASES("text/csv")
def csv_of_features(world: World) -> None:
    same(world.post("a,b,c\n1,2,3\n4,5,6\n", kind="text/csv"), (200, {"predictions": [[2, 4, 6], [8, 10, 12]]}))
    same(world.post("a,b,c\r\n1,2,3", kind="text/csv; charset=utf-8")[0], 200)


@CASES("text/csv")
def csv_of_columns(world: World) -> None:
    text = '\ufeffcity,rooms,area,new\r\n"O""s, lo",2,50.5,True\r\n"a\nb",3.0,1e2,false\r\n'
    found = world.post(text, "table", "text/csv")[1]["predictions"]
    same(found, [{"price": 1250.5, "label": 'in O"s, lo'}, {"price": 400.0, "label": "in a\nb"}])


@CASES("text/csv")
def csv_with_missing_values(world: World) -> None:
    found = world.post("a,b,c\n1,,NaN\n", kind="text/csv")[1]["predictions"][0]
    same([found[0], math.isnan(found[1]), math.isnan(found[2])], [2.0, True, True])


@CASES("text/csv")
def csv_written_by_pandas(world: World) -> None:
    import pandas as pd

    frame = pd.DataFrame(np.arange(3000, dtype=np.float64).reshape(-1, 3), columns=["a", "b", "c"])
    code, found = world.post(frame.to_csv(index=False), kind="text/csv")
    same([code, found["predictions"][999]], [200, [2 * each for each in (2997.0, 2998.0, 2999.0)]])


_BAD_CSV = {
    "empty": ("", "empty"), "names alone": ("a,b,c\n", "no rows"), "a short line": ("a,b,c\n1,2\n", "line 2"),
    "an open quote": ('a,b,c\n"1,2,3\n', "CSV"), "text": ("a,b,c\n1,x,3\n", "'x'"),
    "double names": ("a,a,c\n1,2,3\n", "two columns named 'a'"),
    "too few columns": ("a,b\n1,2\n", "x [-1, 3]"), "many columns": (",".join(map(str, range(70000))) + "\n", "70000 columns"),
    "no UTF-8": (b"a,b,c\n\xff,2,3\n", "UTF-8"),
}  # fmt: skip


def _add_bad_csv() -> None:
    for words, (body, wanted) in _BAD_CSV.items():

        def run(world: World, body: Any = body, wanted: str = wanted) -> None:
            code, found = world.post(body, kind="text/csv")
            same([code, wanted in found["error"], found["error"][:300] if wanted not in found["error"] else ""], [400, True, ""])

        CASES.add(f"csv-{words.replace(' ', '-')}", run, "text/csv", "errors", outcome=REFUSED)


_add_bad_csv()


@CASES("text/csv", "errors", outcome=REFUSED)
def csv_without_a_whole_number(world: World) -> None:
    for value in ("", "2.5", "x", "1e400"):
        code, found = world.post(f"rooms,area,city,new\n{value},1,a,true\n", "table", "text/csv")
        same([code, "rooms" in found["error"]], [400, True])


_BAD: dict[str, tuple[Any, str]] = {
    "no JSON": (b"{", "JSON"), "nothing": ({}, "exactly one of"),
    "two forms": ({"inputs": [[1, 2, 3]], "instances": [[1, 2, 3]]}, "inputs"),
    "an unknown key": ({"inputs": [[1, 2, 3]], "other": 1}, "`other`"), "a list": ([[1, 2, 3]], "object"),
    "uneven rows": ({"dataframe_split": {"columns": ["a", "b", "c"], "data": [[1, 2, 3], [1, 2]]}}, "data[1]"),
    "double columns": ({"dataframe_split": {"columns": ["a", "a", "c"], "data": [[1, 2, 3]]}}, "two columns named 'a'"),
    "a wrong index": ({"dataframe_split": {"columns": ["a", "b", "c"], "index": [1, 2], "data": [[1, 2, 3]]}}, "index"),
    "other columns": ({"dataframe_records": [{"a": 1, "b": 2, "c": 3}, {"a": 1}]}, "records[1]"),
    "no rows": ({"dataframe_records": []}, "empty"), "text": ({"dataframe_records": [{"a": "x", "b": 2, "c": 3}]}, "'x'"),
    "too few columns": ({"dataframe_split": {"columns": ["a"], "data": [[1]]}}, "x [-1, 3]"),
    "a field of pandas": ({"dataframe_split": {"columns": ["a"], "data": [[1]], "dtype": "x"}}, "dtype"),
}  # fmt: skip


def _add_bad() -> None:
    for words, (body, wanted) in _BAD.items():

        def run(world: World, body: Any = body, wanted: str = wanted) -> None:
            code, found = world.post(body)
            same([code, wanted in found["error"], found["error"][:300] if wanted not in found["error"] else ""], [400, True, ""])

        CASES.add(f"error-{words.replace(' ', '-')}", run, "errors", outcome=REFUSED)


_add_bad()


@CASES("charset", "content types", outcome=REFUSED)
def content_types(world: World) -> None:
    for kind in ("application/json; charset=latin-1", "application/vnd.apache.parquet", "text/plain", "application/json; x=y"):
        code, found = world.post({"inputs": [[1, 2, 3]]}, kind=kind)
        same([code, "error" in found], [415, True])


@CASES("charset", "content types")
def content_types_that_are_read(world: World) -> None:
    for kind in ("application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8"):
        same(world.post({"inputs": [[1, 2, 3]]}, kind=kind)[0], 200)


def surface() -> set[str]:
    """Return the methods of the client, and the documented request forms."""
    from mlflow.pyfunc.scoring_server.client import ScoringServerClient

    found = set(FORMS)
    for name, _ in inspect.getmembers(ScoringServerClient, inspect.isfunction):
        if not name.startswith("_"):
            found.add(f"ScoringServerClient.{name}")
    return found | {
        f"ScoringServerClient.invoke.{each}"
        for each in inspect.signature(ScoringServerClient.invoke).parameters
        if each != "self"
    }
