"""The methods of the Python clients, each written once for both. Nothing here does network I/O: see `call.py`."""

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
from fairway.sdk.key import KeyMethods
from fairway.sdk.method.call import ApiCall, Steps, StreamedCall, client_method, streaming_method
from fairway.sdk.method.reply import decode
from fairway.sdk.run import Run, RunList
from fairway.sdk.run_option import RunOptions
from fairway.sdk.service import ServiceMethods
from fairway.sdk.submission import code_upload, document, file_upload, function, prediction, request_body
from fairway.sdk.transport import http, retry
from fairway.spec.job import TrainingJob
from fairway.spec.queue import JobQueue
from fairway.views.apply_result import ApplyResultList, ApplyResultView
from fairway.views.dataset import DatasetList, DatasetView
from fairway.views.defragmentation import DefragmentationPlanView
from fairway.views.diagnosis.run_explanation import RunExplanationView
from fairway.views.event import EventList, EventView
from fairway.views.job import JobView
from fairway.views.metric import MetricList
from fairway.views.model import AliasPromotionView, ModelList, ModelView
from fairway.views.node import NodeList, NodeView
from fairway.views.plan import PlanView
from fairway.views.queue import QueueList, QueueView
from fairway.views.secret import SecretList
from fairway.views.usage import TaskUsageList
from fairway.views.verification import ContentVerificationView

Job = str | JobView
"""A run: its name `mnist-7`, a series `mnist` for its newest run, or a run that another method returned."""
Document = str | PathLike[str] | dict[str, Any] | TrainingJob


class ClientMethods(ServiceMethods, KeyMethods):
    """The methods of both clients. On `AsyncClient` each of them is awaited."""

    namespace: str
    on_cluster: bool
    """Whether the client acts on a cluster; then local files that documents name are sent along."""

    @client_method
    def submit(
        self,
        what: Document | Callable[..., object],
        *,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
        key: str = "",
        **wishes: Unpack[RunOptions],
    ) -> Steps[Run]:
        """Queue a run of a document (a path, YAML text, a dict or a `TrainingJob`) or of a plain Python function.

        A function is called with `args` and `kwargs` in every worker, in the caller's interpreter and
        environment; `result` returns its value. Keywords override the document.

        With a `key` that was used within a day the call returns the run created then; another document with the same key is
        refused. Without a key each call creates a run, and only one even if the reply is lost.
        """
        body = yield from self._body(what, args, kwargs or {}, wishes)
        return decode((yield self._change("POST", "/v1/jobs", body=json.dumps(body).encode(), key=key)), Run)

    @client_method
    def run(
        self,
        what: Document | Callable[..., object],
        *,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
        **wishes: Unpack[RunOptions],
    ) -> Steps[Any]:
        """Submit, wait, and return the function's value on rank 0; for a document, the finished run.

        `client.run(train, workers=2, args=(0.1,))` is `client.result(client.submit(train, workers=2, args=(0.1,)))`. An
        exception of the function is the cause of a `FairwayError`. `timeout` limits the run itself: `timeout="5m"` ends it.
        """
        body = yield from self._body(what, args, kwargs or {}, wishes)
        submitted = decode((yield self._change("POST", "/v1/jobs", body=json.dumps(body).encode())), Run)
        ended = yield from self._wait(submitted, None)
        return function.read_results(ended)[0] if callable(what) else ended

    @client_method
    def plan(self, what: Document, **wishes: Unpack[RunOptions]) -> Steps[PlanView]:
        """Return what a submit would do, and why; nothing is changed."""
        body = yield from self._body(what, (), {}, wishes, plan=True)
        return decode((yield self._call("POST", "/v1/jobs", body=json.dumps({**body, "plan": True}).encode())), PlanView)

    @client_method
    def apply(self, what: Document | JobQueue) -> Steps[tuple[ApplyResultView, ...]]:
        """Apply documents of any kind (a path, YAML text, a dict, a `JobQueue`); return what was done with each of them."""
        text, folder, file = request_body.read(what)
        body = request_body.apply_body(text, folder, file)
        if self.on_cluster:
            body = yield from code_upload.for_cluster(body, folder=folder, namespace=self.namespace)
        return decode((yield self._change("POST", "/v1/apply", body=json.dumps(body).encode())), ApplyResultList).applied

    @client_method
    def get(self, job: Job) -> Steps[Run]:
        """Return a run with its tasks."""
        return decode((yield self._call("GET", _path(job))), Run)

    @client_method
    def list(self, series: str = "", *, phase: str = "", limit: int = 100, before: str = "") -> Steps[RunList]:
        """List runs, newest first; `before` is `next` of the previous page."""
        query = {"series": series, "phase": phase, "limit": limit, "before": before}
        return decode((yield self._call("GET", "/v1/jobs", query)), RunList)

    @client_method
    def stop(self, job: Job, *, now: bool = False) -> Steps[Run]:
        """Stop a run; `now` skips the grace period."""
        return decode((yield self._change("POST", _path(job, "/stop"), body=json.dumps({"now": now}).encode())), Run)

    @client_method
    def resume(self, job: Job) -> Steps[Run]:
        """Resume a stopped or failed run from its last checkpoint."""
        return decode((yield self._change("POST", _path(job, "/resume"))), Run)

    @client_method
    def delete(self, job: Job, *, all: bool = False) -> Steps[tuple[str, ...]]:
        """Delete a run, or with `all` every run of a series; return the names of the deleted runs."""
        reply = json.loads((yield self._change("DELETE", _path(job), {"all": all})))
        return tuple(reply["deleted"])

    @client_method
    def wait(self, job: Job, timeout: float | None = None) -> Steps[Run]:
        """Wait until the run has ended, in any way, and return it. Raises `TimeoutError` after `timeout` seconds."""
        return (yield from self._wait(job, timeout))

    @client_method
    def result(self, job: Job, timeout: float | None = None) -> Steps[Any]:
        """Wait for the run and return the function's value on rank 0. An exception of it is the cause of a `FairwayError`."""
        return function.read_results((yield from self._wait(job, timeout)))[0]

    @client_method
    def results(self, job: Job, timeout: float | None = None) -> Steps[tuple[Any, ...]]:
        """Wait for the run and return the function's value on each rank."""
        return function.read_results((yield from self._wait(job, timeout)))

    @client_method
    def why(self, job: Job) -> Steps[RunExplanationView]:
        """Return the reason for the state of a run, and what would help."""
        return decode((yield self._call("GET", _path(job, "/why"))), RunExplanationView)

    @client_method
    def events(self, job: Job = "", *, limit: int = 1000) -> Steps[tuple[EventView, ...]]:
        """Return the events of a run, or all events, oldest first."""
        path = _path(job, "/events") if job else "/v1/events"
        return decode((yield self._call("GET", path, {"limit": limit})), EventList).events

    @client_method
    def metrics(self, job: Job, metric: str = "", *, limit: int = 2000) -> Steps[MetricList]:
        """Return the metrics that a run reported, in order of time."""
        return decode((yield self._call("GET", _path(job, "/metrics"), {"metric": metric, "limit": limit})), MetricList)

    @client_method
    def top(self, job: Job = "") -> Steps[TaskUsageList | RunList]:
        """Return the current use of each task of a run; without a name, the active runs with their allocations."""
        if job:
            name = job.name if isinstance(job, JobView) else job.removeprefix("job/")
            return decode((yield self._call("GET", f"/v1/top/jobs/{http.quote(name)}")), TaskUsageList)
        return decode((yield self._call("GET", "/v1/top/jobs")), RunList)

    @client_method
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
        """Run a model (`mnist@champion`) over data as a job, shard by shard; predictions become a version of the dataset `out`.

        `data` is a dataset (`new`, `new@2`), a file or folder of .npy, .npz, .jsonl, .csv, .parquet or images, or a URI. `write`
        is jsonl, csv, parquet or npz. `python` is an interpreter with the framework of the model, unless that is ONNX. `cpus` and
        `gpus` are those of a worker. On a cluster the job runs in `image` (default, for ONNX: Fairway's own), and the pods must
        be able to read `data`. The job is only submitted: `client.predict(...).wait()` waits for it.
        """
        version = json.loads((yield self._call("GET", _model(model))))
        rows = fspath(data)
        if exists(rows):
            if self.on_cluster:
                message = f"{rows} is on this machine"
                raise UsageError(message, fix=f"send it first: client.add_data({out!r}, {rows!r}), and use that dataset")
            rows = abspath(rows)
        elif "/" not in rows:
            dataset = json.loads((yield self._call("GET", f"/v1/datasets/{http.quote(rows)}")))
            rows = f"{dataset['name']}@{dataset['version']}"
        out = prediction.dataset_name(out, "out:")
        job_document = prediction.prediction(
            self.namespace,
            version,
            rows,
            out,
            workers=workers,
            shard=shard,
            batch=batch,
            python="" if self.on_cluster else python,
            write=write,
            resources=prediction.resources(str(cpus), str(gpus)),
        )
        if self.on_cluster:
            health = json.loads((yield self._call("GET", "/v1/health")))
            job_image = prediction.image_for(version, image, health.get("image", ""), "image=IMAGE")
            job_document = prediction.in_image(job_document, job_image, python)
        body = {"document": job_document, "origin": document.make_origin(getcwd(), interpreter=sys.executable)}
        return decode((yield self._change("POST", "/v1/jobs", body=json.dumps(body).encode())), Run)

    @client_method
    def nodes(self) -> Steps[tuple[NodeView, ...]]:
        """Return the nodes with their total and free capacity."""
        return decode((yield self._call("GET", "/v1/nodes")), NodeList).nodes

    @client_method
    def defragment(self, *, plan: bool = False, moves: int = 0) -> Steps[DefragmentationPlanView]:
        """Move at most `moves` runs so that free GPUs lie together and a waiting run starts; with `plan` only list the moves."""
        body = json.dumps({"plan": plan, "moves": moves}).encode()
        return decode((yield self._call("POST", "/v1/defragment", body=body)), DefragmentationPlanView)

    @client_method
    def queues(self) -> Steps[tuple[QueueView, ...]]:
        """Return every queue with its state."""
        return decode((yield self._call("GET", "/v1/queues")), QueueList).queues

    @client_method
    def queue(self, name: str) -> Steps[QueueView]:
        """Return a queue with its state."""
        return decode((yield self._call("GET", f"/v1/queues/{http.quote(name)}")), QueueView)

    @client_method
    def delete_queue(self, name: str) -> Steps[None]:
        """Delete a queue that has no waiting or running run."""
        yield self._change("DELETE", f"/v1/queues/{http.quote(name)}")

    @client_method
    def models(self, name: str = "") -> Steps[tuple[ModelView, ...]]:
        """Return every version of a model, or of all models, by name and number."""
        return decode((yield self._call("GET", "/v1/models", {"name": name})), ModelList).models

    @client_method
    def model(self, reference: str) -> Steps[ModelView]:
        """Return a version with its files: `mnist@3`, `mnist@champion`, or the newest: `mnist`."""
        return decode((yield self._call("GET", _model(reference))), ModelView)

    @client_method
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
        """Store a folder or a file as the next version; a URI is fetched. `from_run` records the lineage of a run.

        On a cluster the local files are uploaded: only content that it lacks, so that a second try continues the first.
        """
        path = fspath(source)
        body: dict[str, Any] = {
            "name": name,
            "source": path if "://" in path else abspath(path),
            "imported": "://" in path,
            "metrics": metrics or {},
            "tags": tags or {},
            "from_run": from_run.name if isinstance(from_run, JobView) else from_run,
            "format": format,
            "allow_pickle": allow_pickle,
        }
        if self.on_cluster:
            file_upload.examine(body)
            body |= yield from file_upload.send_model(body, namespace=self.namespace)
        return decode((yield self._change("POST", "/v1/models", body=json.dumps(body).encode())), ModelView)

    @client_method
    def promote_model(self, reference: str, alias: str, *, remove: bool = False) -> Steps[AliasPromotionView]:
        """Set an alias to this version, or with `remove` delete the alias; return its previous version too."""
        body = json.dumps({"alias": alias, "remove": remove}).encode()
        return decode((yield self._call("POST", f"{_model(reference)}/promote", body=body)), AliasPromotionView)

    @client_method
    def tag_model(self, reference: str, tags: dict[str, str | None]) -> Steps[ModelView]:
        """Set tags of a version; None removes a tag."""
        return decode(
            (yield self._change("POST", f"{_model(reference)}/tags", body=json.dumps({"tags": tags}).encode())), ModelView
        )

    @client_method
    def pull_model(self, reference: str, folder: str | PathLike[str]) -> Steps[ModelView]:
        """Copy a version's files into a folder that does not exist or is empty."""
        body = json.dumps({"folder": abspath(fspath(folder))}).encode()
        return decode((yield self._call("POST", f"{_model(reference)}/pull", body=body)), ModelView)

    @client_method
    def verify_models(self, reference: str = "") -> Steps[ContentVerificationView]:
        """Compare content with its SHA-256: of a version, of all versions of a model, or of all models."""
        return (yield from self._verified(_model(reference or "*")))

    @client_method
    def delete_model(self, reference: str) -> Steps[None]:
        """Delete a version; refused while an alias names it or a service serves it."""
        yield self._change("DELETE", _model(reference))

    @client_method
    def datasets(self) -> Steps[tuple[DatasetView, ...]]:
        """Return every version of every dataset, by name and number."""
        return decode((yield self._call("GET", "/v1/datasets")), DatasetList).datasets

    @client_method
    def add_data(self, name: str, source: str | PathLike[str], *, reference: bool = False) -> Steps[DatasetView]:
        """Store a folder or a file as the next version of a dataset; with `reference` it is described, not copied.

        On a cluster the local files are uploaded, as with `register_model`.
        """
        path = fspath(source)
        path = path if reference and "://" in path else abspath(path)
        body: dict[str, Any] = {"name": name, "path": path, "reference": reference}
        if self.on_cluster:
            body |= yield from file_upload.send_dataset(body, namespace=self.namespace)
        return decode((yield self._change("POST", "/v1/datasets", body=json.dumps(body).encode())), DatasetView)

    @client_method
    def verify_data(self, reference: str = "") -> Steps[ContentVerificationView]:
        """Compare copied content with its SHA-256: of a version, of all versions of a dataset, or of all datasets."""
        return (yield from self._verified(f"/v1/datasets/{http.quote(reference or '*')}"))

    def _verified(self, path: str) -> Steps[ContentVerificationView]:
        line = yield ApiCall("GET", f"{path}/verify", {"namespace": self.namespace}, until=_is_last)
        if not line:
            message = "the connection broke off before the content was verified"
            raise UnavailableError(message, fix="try again")
        event = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        if "error" in event:
            raise from_wire(msgspec.json.decode(event["error"]))
        return decode(bytes(event["end"]), ContentVerificationView)

    @client_method
    def secrets(self) -> Steps[tuple[str, ...]]:
        """Return the names of the secrets."""
        return tuple(secret.name for secret in decode((yield self._call("GET", "/v1/secrets")), SecretList).secrets)

    @client_method
    def set_secret(self, name: str, value: str) -> Steps[None]:
        """Store a secret value for tasks that name it."""
        yield self._change("PUT", f"/v1/secrets/{http.quote(name)}", body=json.dumps({"value": value}).encode())

    @client_method
    def delete_secret(self, name: str) -> Steps[None]:
        """Delete a secret."""
        yield self._change("DELETE", f"/v1/secrets/{http.quote(name)}")

    @streaming_method
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
    ) -> StreamedCall[str]:
        """Yield the output of the tasks line by line; with `follow` until the run has ended."""
        query = {"follow": follow, "role": role, "index": index, "tail": tail, "grep": grep, "timestamps": timestamps}
        return StreamedCall(self._call("GET", _path(job, "/logs"), query), lambda line: line.decode("utf-8", "replace"))

    @streaming_method
    def watch(self, job: Job) -> StreamedCall[Run]:
        """Yield the run at each change, until it has ended."""
        return StreamedCall(self._call("GET", _path(job, "/watch"), {"logs": "false"}), _read_change)

    def _call(self, method: str, path: str, query: dict[str, Any] | None = None, body: bytes = b"") -> ApiCall:
        return ApiCall(method, path, {"namespace": self.namespace, **(query or {})}, body)

    def _change(self, method: str, path: str, query: dict[str, Any] | None = None, body: bytes = b"", key: str = "") -> ApiCall:
        """Return a call that takes effect once: it carries an idempotency key, or changes nothing the second time."""
        full_query = {"namespace": self.namespace, **(query or {}), retry.KEY: key or retry.make_key()}
        return ApiCall(method, path, full_query, body, once=True)

    def _body(
        self,
        what: Document | Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        wishes: RunOptions,
        *,
        plan: bool = False,
    ) -> Steps[dict[str, Any]]:
        if callable(what):
            if self.on_cluster:
                message = "a Python function cannot be sent to a cluster"
                raise UsageError(message, fix="submit a document that runs its program: command: python train.py")
            return function.submit_body(what, args, kwargs, wishes, self.namespace)
        if args or kwargs:
            message = "args and kwargs apply only to functions, not to documents"
            raise UsageError(message, fix="write them into the command of the document")
        text, folder, file = request_body.read(what)
        body = request_body.submit_body(text, folder, file)
        if wishes:
            render_request = {"documents": text, "file": file, "to": "kubernetes"}
            rendered = yield self._call("POST", "/v1/render", body=json.dumps(render_request).encode())
            body = request_body.with_wishes(body, rendered, wishes)
        if self.on_cluster:
            return (yield from code_upload.for_cluster(body, folder=folder, namespace=self.namespace, plan=plan))
        return body

    def _wait(self, job: Job, timeout: float | None) -> Steps[Run]:
        # A series is resolved to its newest run now, before another is submitted.
        run = job if isinstance(job, JobView) else decode((yield self._call("GET", _path(job))), Run)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            remaining = None if deadline is None else max(0.001, deadline - time.monotonic())
            call = ApiCall(
                "GET", _path(run, "/watch"), {"namespace": self.namespace, "logs": "false"}, until=_is_end, patience=remaining
            )
            line = yield call
            if line:
                return decode(line, _EndEvent).end


class _EndEvent(msgspec.Struct):
    end: Run


def _is_last(line: bytes) -> bool:
    return line.startswith((b'{"end"', b'{"error"'))


def _is_end(line: bytes) -> bool:
    return line.startswith(b'{"end"')


def _read_change(line: bytes) -> Run | None:
    event = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    view = event.get("job") or event.get("end")
    return decode(bytes(view), Run) if view else None


def _model(reference: str) -> str:
    return f"/v1/models/{http.quote(reference.removeprefix('model/'))}"


def _path(job: Job, tail: str = "") -> str:
    name = job.name if isinstance(job, JobView) else job.removeprefix("job/")
    if not name:
        message = "no job is named"
        raise UsageError(message, fix="give a name such as mnist-7")
    return f"/v1/jobs/{http.quote(name)}{tail}"
