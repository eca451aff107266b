"""Sends a replica the inputs that a framework got, from one client and from many, and compares the responses."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fairway.serving.replica.model.datatype import from_raw, of_texts, to_raw

TOLERANCES = {"BF16": 2e-2, "FP16": 2e-3, "FP32": 1e-4, "FP64": 1e-4}
Arrays = dict[str, Any]


class Kept:
    """What `kept.keep` wrote for one model."""

    def __init__(self, path: Path) -> None:
        self.told: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
        with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
            self._arrays = dict(arrays)
        self.rows: int = self.told["rows"]
        self.inputs = self._side("inputs")
        self.together = self._side("together")
        self.alone = self._side("alone")

    def _side(self, side: str) -> Arrays:
        found: Arrays = {}
        for name, told in self.told.get(side, {}).items():
            if "texts" in told:
                found[name] = of_texts([text.encode() for text in told["texts"]]).reshape(told["shape"])
            else:
                found[name] = self._arrays[f"{side}.{name}"]
        return found


class Asker:
    """One client, with one connection."""

    def __init__(self, address: str, name: str, model: dict[str, Any]) -> None:
        self._wire = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
        self._path = f"/v2/models/{name}/infer"
        self._words = {told["name"]: told["datatype"] for told in (*model["inputs"], *model["outputs"])}

    def ask(self, inputs: Arrays) -> Arrays:
        """Return the outputs by name, over the binary extension of the Open Inference Protocol."""
        raws = {name: to_raw(self._words[name], array) for name, array in inputs.items()}
        asked = [
            {
                "name": name,
                "datatype": self._words[name],
                "shape": list(array.shape),
                "parameters": {"binary_data_size": len(raws[name])},
            }
            for name, array in inputs.items()
        ]
        head = json.dumps({"inputs": asked, "parameters": {"binary_data_output": True}}).encode()
        headers = {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}
        self._wire.request("POST", self._path, head + b"".join(raws.values()), headers)
        answer = self._wire.getresponse()
        body = answer.read()
        assert answer.status == 200, body[:500]
        length = int(answer.headers["Inference-Header-Content-Length"])
        found, at = {}, length
        for told in json.loads(body[:length])["outputs"]:
            size = told["parameters"]["binary_data_size"]
            raw = memoryview(body)[at : at + size]
            found[told["name"]] = from_raw(told["datatype"], raw, int(np.prod(told["shape"])), told["name"]).reshape(
                told["shape"]
            )
            at += size
        return found

    def close(self) -> None:
        self._wire.close()


def differences(words: dict[str, str], wanted: Arrays, given: Arrays) -> Iterator[str]:
    """Describe the outputs that differ beyond the tolerance."""
    if wanted.keys() != given.keys():
        yield f"outputs are {sorted(given)} and not {sorted(wanted)}"
        return
    for name, array in wanted.items():
        other = given[name]
        if array.shape != other.shape:
            yield f"{name} has shape {other.shape} and not {array.shape}"
        elif words[name] == "BYTES":
            texts = [
                [each if isinstance(each, bytes) else str(each).encode() for each in one.ravel().tolist()]
                for one in (array, other)
            ]
            if texts[0] != texts[1]:
                yield f"{name} is {texts[1][:3]} and not {texts[0][:3]}"
        elif words[name] in TOLERANCES:
            tolerance = TOLERANCES[words[name]]
            if not np.allclose(other.astype("f8"), array.astype("f8"), rtol=tolerance, atol=tolerance, equal_nan=True):
                yield f"{name} differs by {np.abs(other.astype('f8') - array.astype('f8')).max():.3g}"
        elif not np.array_equal(other, array):
            yield f"{name} is {other.ravel()[:3]} and not {array.ravel()[:3]}"


def compare(address: str, name: str, model: dict[str, Any], kept: Kept, clients: int, asks: int) -> tuple[int, list[str]]:
    """Return how many responses were compared, and the differences.

    Each client requests rows one by one; one client also requests all rows together.
    """
    words = {told["name"]: told["datatype"] for told in model["outputs"]}
    problems: list[str] = []
    counts: list[int] = []

    def work(number: int) -> None:
        asker, count = Asker(address, name, model), 0
        try:
            for ask in range(asks):
                place = (number * 5 + ask) % kept.rows
                if not kept.alone or (number == 0 and ask == 0):
                    wanted, inputs = kept.together, kept.inputs
                else:
                    wanted, inputs = _row(kept.alone, place), _row(kept.inputs, place)
                problems.extend(differences(words, wanted, asker.ask(inputs)))
                count += 1
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a difference
            problems.append(f"{type(error).__name__}: {error}")
        finally:
            asker.close()
            counts.append(count)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts), problems


def _row(arrays: Arrays, place: int) -> Arrays:
    return {name: array[place : place + 1] for name, array in arrays.items()}
