"""Observes every state of every pod of a namespace, and records violations of what must never happen."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections import defaultdict
from typing import Any

from cluster.control_plane import ControlPlane


class Witness:
    """`with Witness(plane, namespace, cores=2) as seen:` watches until the end of the block."""

    def __init__(self, plane: ControlPlane, namespace: str, cores: float) -> None:
        self.wrong: list[str] = []
        """The violations, as text."""
        self.made: dict[str, set[str]] = defaultdict(set)
        """The uids that pods of this name had."""
        self._cores = cores
        self._pods: dict[str, dict[str, Any]] = {}
        self._path = f"/api/v1/namespaces/{namespace}/pods?watch=1"
        pair = plane.authority.client("admin", ("system:masters",))
        context = ssl.create_default_context(cafile=str(plane.authority.pair.certificate))
        context.load_cert_chain(pair.certificate, pair.key)
        self._connection = http.client.HTTPSConnection(plane.address, plane.port, context=context)
        self._thread = threading.Thread(target=self._watch)
        self._over = False

    def __enter__(self) -> Witness:
        self._connection.request("GET", self._path)
        self._answer = self._connection.getresponse()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        if self._connection.sock is not None:
            self._connection.sock.shutdown(2)
        self._thread.join()
        self._connection.close()

    def _watch(self) -> None:
        try:
            for line in self._answer:
                self._see(json.loads(line))
        except (OSError, http.client.HTTPException, ValueError):
            pass
        if not self._over:
            self.wrong.append("the witness was cut off")

    def _see(self, event: dict[str, Any]) -> None:
        pod = event["object"]
        name = pod["metadata"]["name"]
        self.made[name].add(pod["metadata"]["uid"])
        self._pods[name] = pod
        if event["type"] == "DELETED":
            del self._pods[name]
        ours = "fairway.dev/run" in pod["metadata"].get("labels", {})
        if ours and not pod["metadata"].get("ownerReferences"):
            self.wrong.append(f"{name} belongs to nobody")
        if ours and len(self.made[name]) > 1:
            self.wrong.append(f"{name} was made twice")
        self._count()

    def _count(self) -> None:
        used: dict[str, float] = defaultdict(float)
        devices: dict[str, str] = {}
        for name, pod in self._pods.items():
            if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
                continue
            used[pod["spec"]["nodeName"]] += sum(_cores(each) for each in pod["spec"]["containers"])
            for device in filter(None, pod["metadata"].get("annotations", {}).get("fairway.dev/gpu-ids", "").split(",")):
                if device in devices:
                    self.wrong.append(f"{device} is given to {name} and {devices[device]}")
                devices[device] = name
        self.wrong += [f"{node} has given {cores} cores" for node, cores in used.items() if cores > self._cores]


def _cores(container: dict[str, Any]) -> float:
    text = container.get("resources", {}).get("requests", {}).get("cpu", "0")
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)
