"""Every verb of the Python face, written once. Nothing here does network I/O: see `verb.py`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from os import PathLike, fspath, getcwd
from os.path import abspath, exists
from typing import Any, Unpack

import msgspec

from fairway.errors import UnavailableError, UsageError, from_wire
from fairway.sdk import document, function, predicting, retry, sending, submitting, uploading, wire
from fairway.sdk.decoding import decode
from fairway.sdk.key_calls import KeyVerbs
from fairway.sdk.run import Run, RunList
from fairway.sdk.service_calls import ServiceVerbs
from fairway.sdk.verb import Call, Lines, Steps, listening, verb
from fairway.sdk.wishes import Wishes
from fairway.spec.job import TrainingJob
from fairway.spec.queue import JobQueue
from fairway.views.applied import AppliedList, AppliedView
from fairway.views.dataset import DatasetList, DatasetView
from fairway.views.event import EventList, EventView
from fairway.views.job import JobView
from fairway.views.metric import MetricList
from fairway.views.model import ModelList, ModelView, PromotionView
from fairway.views.moves import MovePlanView
from fairway.views.node import NodeList, NodeView
from fairway.views.plan import PlanView
from fairway.views.queue import QueueList, QueueView
from fairway.views.secret import SecretList
from fairway.views.usage import UsageList
from fairway.views.verification import VerificationView
from fairway.views.why import WhyView

Job = str | JobView
"""A run: `mnist-7`, the newest of a series: `mnist`, or what another verb returned."""
Document = str | PathLike[str] | dict[str, Any] | TrainingJob


class Verbs(ServiceVerbs, KeyVerbs):
    """What both clients can do. On `AsyncClient` each of these is awaited."""

    namespace: str
    on_cluster: bool
    """Whether it acts on one: what documents name of this machine goes along then."""

    @verb
    def submit(
        self,
        what: Document | Callable[..., object],
        *,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
        key: str = "",
        **wishes: Unpack[Wishes],
    ) -> Steps[Run]:
        """Queue a run of a document (a path, YAML text, a dict or a `TrainingJob`) or of a plain Python function.

        A function is called with `args` and `kwargs` in every worker, in the caller's interpreter and
        environment; `result` gives what it returned. Wishes win over what the document says.

        The same `key` again, within a day, gives the run that it made before instead of another one, and is refused for another
        document. Without one each call makes a run, once also when the answer is lost on the way.
        """
        body = yield from self._body(what, args, kwargs or {}, wishes)
        return decode((yield self._change("POST", "/v1/jobs", body=json.dumps(body).encode(), key=key)), Run)

    @verb
    def run(
        self,
        what: Document | Callable[..., object],
        *,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
        **wishes: Unpack[Wishes],
    ) -> Steps[Any]:
        """Submit, wait, and give what the function returned on rank 0; of a document, the run that ended.

        `client.run(train, workers=2, args=(0.1,))` is `client.result(client.submit(train, workers=2, args=(0.1,)))`. What the
        function raised is the cause of a `FairwayError`. `timeout` is the run's own, as everywhere: `timeout="5m"` ends it.
        """
        body = yield from self._body(what, args, kwargs or {}, wishes)
        made = decode((yield self._change("POST", "/v1/jobs", body=json.dumps(body).encode())), Run)
        ended = yield from self._wait(made, None)
        return function.read_results(ended)[0] if callable(what) else ended

    @verb
    def plan(self, what: Document, **wishes: Unpack[Wishes]) -> Steps[PlanView]:
        """What a submit would do, and why; nothing is changed."""
        body = yield from self._body(what, (), {}, wishes, plan=True)
        return decode((yield self._call("POST", "/v1/jobs", body=json.dumps({**body, "plan": True}).encode())), PlanView)

    @verb
    def apply(self, what: Document | JobQueue) -> Steps[tuple[AppliedView, ...]]:
        """Make documents of any kind so (a path, YAML text, a dict, a `JobQueue`): what was done with each of them."""
        text, folder, file = submitting.read(what)
        body = submitting.apply_body(text, folder, file)
        if self.on_cluster:
            body = yield from sending.for_cluster(body, folder=folder, namespace=self.namespace)
        return decode((yield self._change("POST", "/v1/apply", body=json.dumps(body).encode())), AppliedList).applied

    @verb
    def get(self, job: Job) -> Steps[Run]:
        """One run with its tasks."""
        return decode((yield self._call("GET", _path(job))), Run)

    @verb
    def list(self, series: str = "", *, phase: str = "", limit: int = 100, before: str = "") -> Steps[RunList]:
        """Runs, newest first; `before` is `next` of the page before."""
        query = {"series": series, "phase": phase, "limit": limit, "before": before}
        return decode((yield self._call("GET", "/v1/jobs", query)), RunList)

    @verb
    def stop(self, job: Job, *, now: bool = False) -> Steps[Run]:
        """Ask a run to end; `now` leaves out the grace."""
        return decode((yield self._change("POST", _path(job, "/stop"), body=json.dumps({"now": now}).encode())), Run)

    @verb
    def resume(self, job: Job) -> Steps[Run]:
        """Go on with a run that was stopped or has failed, from its last checkpoint."""
        return decode((yield self._change("POST", _path(job, "/resume"))), Run)

    @verb
    def delete(self, job: Job, *, all: bool = False) -> Steps[tuple[str, ...]]:
        """Forget a run, or with `all` every run of a series; the names of those that are gone."""
        reply = json.loads((yield self._change("DELETE", _path(job), {"all": all})))
        return tuple(reply["deleted"])

    @verb
    def wait(self, job: Job, timeout: float | None = None) -> Steps[Run]:
        """The run when it has ended, however it did. Raises `TimeoutError` when it has not after so many seconds."""
        return (yield from self._wait(job, timeout))

    @verb
    def result(self, job: Job, timeout: float | None = None) -> Steps[Any]:
        """What the function returned on rank 0, when the run has ended. What it raised is the cause of a `FairwayError`."""
        return function.read_results((yield from self._wait(job, timeout)))[0]

    @verb
    def results(self, job: Job, timeout: float | None = None) -> Steps[tuple[Any, ...]]:
        """What the function returned on each rank."""
        return function.read_results((yield from self._wait(job, timeout)))

    @verb
    def why(self, job: Job) -> Steps[WhyView]:
        """Why a run is where it is, and what would help."""
        return decode((yield self._call("GET", _path(job, "/why"))), WhyView)

    @verb
    def events(self, job: Job = "", *, limit: int = 1000) -> Steps[tuple[EventView, ...]]:
        """What happened to a run, or to everything, oldest first."""
        path = _path(job, "/events") if job else "/v1/events"
        return decode((yield self._call("GET", path, {"limit": limit})), EventList).events

    @verb
    def metrics(self, job: Job, metric: str = "", *, limit: int = 2000) -> Steps[MetricList]:
        """The numbers that a run reported, in order of time."""
        return decode((yield self._call("GET", _path(job, "/metrics"), {"metric": metric, "limit": limit})), MetricList)

    @verb
    def top(self, job: Job = "") -> Steps[UsageList | RunList]:
        """What each task of a run uses now, of what it holds; without a name the runs that are not over, and what they hold."""
        if job:
            name = job.name if isinstance(job, JobView) else job.removeprefix("job/")
            return decode((yield self._call("GET", f"/v1/top/jobs/{wire.quote(name)}")), UsageList)
        return decode((yield self._call("GET", "/v1/top/jobs")), RunList)

    @verb
    def predict(
        self,
        model: str,
        data: str | PathLike[str],
        out: str,
        *,
        workers: int = 1,
        shard: int = 1000,
        batch: int = 256,
        python: str = "",
        image: str = "",
        write: str = "auto",
        cpus: float | str = "",
        gpus: float | str = "",
    ) -> Steps[Run]:
        """Run a model (`mnist@champion`) over data as a job, shard by shard; the predictions are a version of the dataset `out`.

        `data` is a dataset (`new`, `new@2`), a file or folder of .npy, .npz, .jsonl, .csv, .parquet or images, or a URI. `write`:
        jsonl, csv, parquet or npz. `python` has the framework of the model, where it is not ONNX. `cpus`, `gpus`: of a worker.
        On a cluster the job runs in `image` (default, for ONNX: Fairway's own), and `data` is reached from there. The job is
        submitted: `client.predict(...).wait()` waits for it.
        """
        version = json.loads((yield self._call("GET", _model(model))))
        rows = fspath(data)
        if exists(rows):
            if self.on_cluster:
                message = f"{rows} lies on this machine"
                raise UsageError(message, fix=f"send it first: client.add_data({out!r}, {rows!r}), and name that dataset")
            rows = abspath(rows)
        elif "/" not in rows:
            found = json.loads((yield self._call("GET", f"/v1/datasets/{wire.quote(rows)}")))
            rows = f"{found['name']}@{found['version']}"
        out = predicting.dataset_name(out, "out:")
        wanted = predicting.prediction(
            self.namespace,
            version,
            rows,
            out,
            workers=workers,
            shard=shard,
            batch=batch,
            python="" if self.on_cluster else python,
            write=write,
            resources=predicting.resources(str(cpus), str(gpus)),
        )
        if self.on_cluster:
            health = json.loads((yield self._call("GET", "/v1/health")))
            chosen = predicting.image_for(version, image, health.get("image", ""), "image=IMAGE")
            wanted = predicting.in_image(wanted, chosen, python)
        body = {"document": wanted, "origin": document.make_origin(getcwd(), interpreter=sys.executable)}
        return decode((yield self._change("POST", "/v1/jobs", body=json.dumps(body).encode())), Run)

    @verb
    def nodes(self) -> Steps[tuple[NodeView, ...]]:
        """What there is to run on, and what is free of it."""
        return decode((yield self._call("GET", "/v1/nodes")), NodeList).nodes

    @verb
    def defragment(self, *, plan: bool = False, moves: int = 0) -> Steps[MovePlanView]:
        """Move runs so that free GPUs lie together and a waiting run starts, or with `plan` say which would; `moves` at most."""
        body = json.dumps({"plan": plan, "moves": moves}).encode()
        return decode((yield self._call("POST", "/v1/defragment", body=body)), MovePlanView)

    @verb
    def queues(self) -> Steps[tuple[QueueView, ...]]:
        """Every queue, and how it stands."""
        return decode((yield self._call("GET", "/v1/queues")), QueueList).queues

    @verb
    def queue(self, name: str) -> Steps[QueueView]:
        """One queue, and how it stands."""
        return decode((yield self._call("GET", f"/v1/queues/{wire.quote(name)}")), QueueView)

    @verb
    def delete_queue(self, name: str) -> Steps[None]:
        """Forget a queue that no run waits or runs in."""
        yield self._change("DELETE", f"/v1/queues/{wire.quote(name)}")

    @verb
    def models(self, name: str = "") -> Steps[tuple[ModelView, ...]]:
        """Every version of a model, or of all models, by name and number."""
        return decode((yield self._call("GET", "/v1/models", {"name": name})), ModelList).models

    @verb
    def model(self, reference: str) -> Steps[ModelView]:
        """One version with its files: `mnist@3`, `mnist@champion`, or the newest: `mnist`."""
        return decode((yield self._call("GET", _model(reference))), ModelView)

    @verb
    def register_model(
        self,
        name: str,
        source: str | PathLike[str],
        *,
        metrics: dict[str, float] | None = None,
        tags: dict[str, str] | None = None,
        from_run: Job = "",
        format: str = "",
        allow_pickle: bool = False,
    ) -> Steps[ModelView]:
        """Keep a folder or a file as the next version; a URI is fetched. `from_run` gives it the lineage of a run.

        On a cluster the files of this machine are sent: only what is lacking there, so that a second try goes on where one ended.
        """
        place = fspath(source)
        body: dict[str, Any] = {
            "name": name,
            "source": place if "://" in place else abspath(place),
            "imported": "://" in place,
            "metrics": metrics or {},
            "tags": tags or {},
            "from_run": from_run.name if isinstance(from_run, JobView) else from_run,
            "format": format,
            "allow_pickle": allow_pickle,
        }
        if self.on_cluster:
            uploading.examine(body)
            body |= yield from uploading.send_model(body, namespace=self.namespace)
        return decode((yield self._change("POST", "/v1/models", body=json.dumps(body).encode())), ModelView)

    @verb
    def promote_model(self, reference: str, alias: str, *, remove: bool = False) -> Steps[PromotionView]:
        """Let an alias mean this version, or with `remove` take it away; what it meant before."""
        body = json.dumps({"alias": alias, "remove": remove}).encode()
        return decode((yield self._call("POST", f"{_model(reference)}/promote", body=body)), PromotionView)

    @verb
    def tag_model(self, reference: str, tags: dict[str, str | None]) -> Steps[ModelView]:
        """Put tags on a version; None takes one off."""
        return decode(
            (yield self._change("POST", f"{_model(reference)}/tags", body=json.dumps({"tags": tags}).encode())), ModelView
        )

    @verb
    def pull_model(self, reference: str, folder: str | PathLike[str]) -> Steps[ModelView]:
        """Copy a version's files into a folder that is not there yet, or empty."""
        body = json.dumps({"folder": abspath(fspath(folder))}).encode()
        return decode((yield self._call("POST", f"{_model(reference)}/pull", body=body)), ModelView)

    @verb
    def verify_models(self, reference: str = "") -> Steps[VerificationView]:
        """Compare content with its SHA-256: of a version, of all versions of a model, or of all models."""
        return (yield from self._verified(_model(reference or "*")))

    @verb
    def delete_model(self, reference: str) -> Steps[None]:
        """Delete a version; refused while an alias names it or a service serves it."""
        yield self._change("DELETE", _model(reference))

    @verb
    def datasets(self) -> Steps[tuple[DatasetView, ...]]:
        """Every version of every dataset, by name and number."""
        return decode((yield self._call("GET", "/v1/datasets")), DatasetList).datasets

    @verb
    def add_data(self, name: str, source: str | PathLike[str], *, reference: bool = False) -> Steps[DatasetView]:
        """Keep a folder or a file as the next version of a dataset; by `reference` it is described, not copied.

        On a cluster the files of this machine are sent, as with `register_model`.
        """
        place = fspath(source)
        place = place if reference and "://" in place else abspath(place)
        body: dict[str, Any] = {"name": name, "path": place, "reference": reference}
        if self.on_cluster:
            body |= yield from uploading.send_dataset(body, namespace=self.namespace)
        return decode((yield self._change("POST", "/v1/datasets", body=json.dumps(body).encode())), DatasetView)

    @verb
    def verify_data(self, reference: str = "") -> Steps[VerificationView]:
        """Compare copied content with its SHA-256: of a version, of all versions of a dataset, or of all datasets."""
        return (yield from self._verified(f"/v1/datasets/{wire.quote(reference or '*')}"))

    def _verified(self, path: str) -> Steps[VerificationView]:
        line = yield Call("GET", f"{path}/verify", {"namespace": self.namespace}, until=_is_last)
        if not line:
            message = "the answer broke off before the content was verified"
            raise UnavailableError(message, fix="ask again")
        told = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        if "error" in told:
            raise from_wire(msgspec.json.decode(told["error"]))
        return decode(bytes(told["end"]), VerificationView)

    @verb
    def secrets(self) -> Steps[tuple[str, ...]]:
        """The names of the secrets."""
        return tuple(secret.name for secret in decode((yield self._call("GET", "/v1/secrets")), SecretList).secrets)

    @verb
    def set_secret(self, name: str, value: str) -> Steps[None]:
        """Keep a value for tasks that ask for it by name."""
        yield self._change("PUT", f"/v1/secrets/{wire.quote(name)}", body=json.dumps({"value": value}).encode())

    @verb
    def delete_secret(self, name: str) -> Steps[None]:
        """Forget a value."""
        yield self._change("DELETE", f"/v1/secrets/{wire.quote(name)}")

    @listening
    def logs(
        self,
        job: Job,
        *,
        follow: bool = False,
        role: str = "",
        index: int | None = None,
        tail: int | None = None,
        grep: str = "",
        timestamps: bool = False,
    ) -> Lines[str]:
        """What the tasks printed, line by line; with `follow` until the run has ended."""
        query = {"follow": follow, "role": role, "index": index, "tail": tail, "grep": grep, "timestamps": timestamps}
        return Lines(self._call("GET", _path(job, "/logs"), query), lambda line: line.decode("utf-8", "replace"))

    @listening
    def watch(self, job: Job) -> Lines[Run]:
        """The run at each change, until it has ended."""
        return Lines(self._call("GET", _path(job, "/watch"), {"logs": "false"}), _read_change)

    def _call(self, method: str, path: str, query: dict[str, Any] | None = None, body: bytes = b"") -> Call:
        return Call(method, path, {"namespace": self.namespace, **(query or {})}, body)

    def _change(self, method: str, path: str, query: dict[str, Any] | None = None, body: bytes = b"", key: str = "") -> Call:
        """A request that is done once: it carries a key, or changes nothing the second time."""
        asked = {"namespace": self.namespace, **(query or {}), retry.KEY: key or retry.make_key()}
        return Call(method, path, asked, body, once=True)

    def _body(
        self,
        what: Document | Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        wishes: Wishes,
        *,
        plan: bool = False,
    ) -> Steps[dict[str, Any]]:
        if callable(what):
            if self.on_cluster:
                message = "a Python function cannot be sent to a cluster"
                raise UsageError(message, fix="submit a document that runs its program: command: python train.py")
            return function.submit_body(what, args, kwargs, wishes, self.namespace)
        if args or kwargs:
            message = "args and kwargs are for functions; a document has none"
            raise UsageError(message, fix="write them into its command")
        text, folder, file = submitting.read(what)
        body = submitting.submit_body(text, folder, file)
        if wishes:
            asked = {"documents": text, "file": file, "to": "kubernetes"}
            rendered = yield self._call("POST", "/v1/render", body=json.dumps(asked).encode())
            body = submitting.with_wishes(body, rendered, wishes)
        if self.on_cluster:
            return (yield from sending.for_cluster(body, folder=folder, namespace=self.namespace, plan=plan))
        return body

    def _wait(self, job: Job, timeout: float | None) -> Steps[Run]:
        # A series is pinned to the run that it means now, before another is submitted.
        named = job if isinstance(job, JobView) else decode((yield self._call("GET", _path(job))), Run)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(0.001, deadline - time.monotonic())
            call = Call(
                "GET", _path(named, "/watch"), {"namespace": self.namespace, "logs": "false"}, until=_is_end, patience=left
            )
            line = yield call
            if line:
                return decode(line, _End).end


class _End(msgspec.Struct):
    end: Run


def _is_last(line: bytes) -> bool:
    return line.startswith((b'{"end"', b'{"error"'))


def _is_end(line: bytes) -> bool:
    return line.startswith(b'{"end"')


def _read_change(line: bytes) -> Run | None:
    told = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    given = told.get("job") or told.get("end")
    return decode(bytes(given), Run) if given else None


def _model(reference: str) -> str:
    return f"/v1/models/{wire.quote(reference.removeprefix('model/'))}"


def _path(job: Job, tail: str = "") -> str:
    name = job.name if isinstance(job, JobView) else job.removeprefix("job/")
    if not name:
        message = "no job is named"
        raise UsageError(message, fix="give a name such as mnist-7")
    return f"/v1/jobs/{wire.quote(name)}{tail}"
