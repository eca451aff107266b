"""Loads a model, warms it up, and only then listens."""

from __future__ import annotations

import gc
import os
import socket
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from fairway.app.system.clock import SystemClock
from fairway.errors import ConflictError, FairwayError
from fairway.serving.replica import command_line
from fairway.serving.replica.batching.batcher import Batcher
from fairway.serving.replica.http.application import ReplicaApplication
from fairway.serving.replica.http.origin_check import OriginCheck, is_loopback
from fairway.serving.replica.http.uvicorn_server import ReplicaServer, listen, raise_file_limit
from fairway.serving.replica.independence_proof import prove
from fairway.serving.replica.model import version_folder
from fairway.serving.replica.model.datatype import DTYPES, Array, of_texts
from fairway.serving.replica.model.served_model import ModelAbilities, ServedModel
from fairway.serving.replica.request_error import ModelError
from fairway.serving.replica.runtimes.onnx_runtime import OnnxRuntime
from fairway.serving.replica.runtimes.runtime import ModelRuntime
from fairway.serving.replica.telemetry import gpu_metrics
from fairway.serving.replica.telemetry.replica_metrics import ReplicaMetrics
from fairway.serving.span_tracer import is_wanted, tracer_of
from fairway.state.model import ModelSignature, TensorSpec
from fairway.state.serving.batching_verdict import BatchingBasis, BatchingVerdict

if TYPE_CHECKING:
    from fairway.serving.replica.telemetry.replica_tracer import ReplicaTracer
    from fairway.serving.replica.telemetry.request_sampler import RequestSampler
    from fairway.serving.replica.text_generation import TextGenerator


def main(arguments: list[str] | None = None) -> int:
    """Serve until terminated; return the exit code."""
    parsed = command_line.read(arguments)
    try:
        version = version_folder.find(parsed.folder, parsed.format, parsed.runtime, allow_pickle=parsed.allow_pickle)
        if version.runtime == "onnx":
            return ReplicaStartup(parsed, OnnxRuntime(version.entry, parsed.threads), version.batching).serve()
        # Imported only by the replicas that need them.
        from fairway.serving.replica.runtimes.worker_runtime import WorkerRuntime  # noqa: PLC0415
        from fairway.serving.replica.text_generation import TextGenerator  # noqa: PLC0415

        worker = WorkerRuntime(version, parsed.python, parsed.threads)
        start = ReplicaStartup(parsed, worker, version.batching, worker.abilities)
        if worker.generates or worker.embeds:
            start.generating = TextGenerator(worker, start.model, parsed.limits.max_queue, start.now)
        worker.on_end = start.give_up
        return start.serve()
    except FairwayError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code


class ReplicaStartup:
    """A loaded model and the startup of its server."""

    def __init__(
        self,
        chosen: command_line.ReplicaOptions,
        runtime: ModelRuntime,
        declared: str,
        abilities: ModelAbilities = ModelAbilities(),
    ) -> None:
        """`declared`: the batching declared in `fairway.json`."""
        self._chosen = chosen
        self._runtime = runtime
        self._declared = declared
        self._metrics = ReplicaMetrics()
        self._metrics.gpus = gpu_metrics.of_environment() or self._metrics.gpus
        self._batcher = Batcher(runtime, chosen.limits, self._metrics)
        self._server: ReplicaServer | None = None
        self._gone = False
        self.now = SystemClock().now
        self.generating: TextGenerator | None = None
        description = (chosen.name, chosen.version, runtime.platform, runtime.signature, runtime.batches, chosen.labels)
        self.model = ServedModel(*description, **asdict(abilities))

    def serve(self) -> int:
        """Warm up, listen, and serve until terminated."""
        try:
            self._warm_up()
            try:
                listener = listen(self._chosen.host, self._chosen.port)
            except OSError as error:
                message = f"cannot listen on port {self._chosen.port}: {error}"
                raise ConflictError(message, fix="choose another --port; 0 picks a free one") from None
            return self._serve(listener)
        finally:
            self._batcher.close()
            self._runtime.close()

    def give_up(self) -> None:
        """End because the model is gone, after all waiting requests were answered."""
        self._gone = True
        if self._server is not None:
            self._server.give_up()

    def _serve(self, listener: socket.socket) -> int:
        chosen, model = self._chosen, self.model
        sampler = self._sampler()
        app = ReplicaApplication(model, self._batcher, self._metrics, chosen.bodies, self.now, self.generating, sampler)
        hello = "{}@{} ({}) is served at http://{}:{}\n".format(
            model.name, model.version, model.platform, *listener.getsockname()
        )
        app.tracer = self._tracer()
        if is_loopback(chosen.host):
            app.door = OriginCheck(listener.getsockname()[1])
        raise_file_limit()
        self._server = ReplicaServer(app, chosen.limits.deadline, hello)
        if self._gone:
            self._server.give_up()
        # Objects that live as long as the process need not be scanned again by the garbage collector.
        gc.freeze()
        gc.enable()
        try:
            self._server.run(sockets=[listener])
        finally:
            if sampler is not None:
                sampler.close()
            if app.tracer is not None:
                app.tracer.close()
        return int(self._gone)

    def _tracer(self) -> ReplicaTracer | None:
        if not is_wanted(os.environ):
            return None
        from fairway.serving.replica.telemetry.replica_tracer import ReplicaTracer  # noqa: PLC0415  # only if enabled

        tracer = tracer_of(os.environ, "fairway-replica")
        return ReplicaTracer(tracer, self.model, self.now) if tracer is not None else None

    def _sampler(self) -> RequestSampler | None:
        chosen = self._chosen
        if chosen.sample_folder is None or not chosen.sample_rate:
            return None
        from fairway.serving.replica.telemetry.request_sampler import RequestSampler  # noqa: PLC0415  # only if enabled

        return RequestSampler(chosen.sample_folder, chosen.sample_rate, self.model, self._metrics, self.now)

    def _warm_up(self) -> None:
        """Warm up before the first request. A model that rejects zeros is not considered broken."""
        if not self.model.signature.inputs:
            return
        verdict = self._verdict()
        sys.stderr.write(f"{verdict}\n")
        self._batcher.decide(verdict)
        try:
            self._batcher.warm_up(sample_of(self.model.signature))
        except ModelError as error:
            sys.stderr.write(f"warm-up with zeros failed, the first requests will be slower: {error}\n")

    def _verdict(self) -> BatchingVerdict:
        """Return the batching verdict: the declared one, or the result of a proof."""
        option, declared = self._chosen.batching, self._declared
        setting, source = (option, "the service or --batching") if option != "auto" else (declared, "fairway.json")
        if setting == "never":
            return BatchingVerdict(False, BatchingBasis.DECLARED, f"by {source}")
        if setting == "always" and self._runtime.batches:
            return BatchingVerdict(True, BatchingBasis.DECLARED, f"by {source}")
        if getattr(self._runtime, "independent", False) and self._runtime.batches:
            return BatchingVerdict(True, BatchingBasis.DECLARED, f"{self._runtime.platform} computes each row independently")
        sys.stderr.write(
            "testing whether rows can be batched; until the result is known, errors of the model come from test inputs\n"
        )
        return prove(self._runtime, self._chosen.limits.max_batch)


def sample_of(signature: ModelSignature) -> list[Array]:
    """Return inputs for a run of the model: zeros, one row, 1 for every free dimension."""
    return [_zeros(spec) for spec in signature.inputs]


def _zeros(spec: TensorSpec) -> Array:
    shape = tuple(1 if length < 0 else length for length in spec.shape)
    if spec.datatype == "BYTES":
        return of_texts([b""] * int(np.prod(shape))).reshape(shape)
    return np.zeros(shape, DTYPES[spec.datatype])
