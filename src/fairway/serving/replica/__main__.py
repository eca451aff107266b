"""Load a model, warm it up, and only then listen."""

from __future__ import annotations

import gc
import sys

import numpy as np

from fairway.app.system import SystemClock
from fairway.errors import FairwayError
from fairway.serving.replica import folder, options
from fairway.serving.replica.asgi import App
from fairway.serving.replica.batching import Batcher
from fairway.serving.replica.datatypes import DTYPES, Array, of_texts
from fairway.serving.replica.generating import Generating
from fairway.serving.replica.metrics import Metrics
from fairway.serving.replica.model import ServedModel
from fairway.serving.replica.problem import ModelError
from fairway.serving.replica.runtimes.onnx import OnnxRuntime
from fairway.serving.replica.runtimes.process import WorkerRuntime
from fairway.serving.replica.runtimes.runtime import Runtime
from fairway.serving.replica.sampling import Sampler
from fairway.serving.replica.server import Server, listen
from fairway.state.model import Signature, TensorSpec


def main(arguments: list[str] | None = None) -> int:
    """Serve until told to end; the exit code."""
    chosen = options.read(arguments)
    try:
        runtime = _load(chosen)
    except FairwayError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    try:
        return _serve(chosen, runtime)
    finally:
        runtime.close()


def _serve(chosen: options.Options, runtime: Runtime) -> int:
    metrics = Metrics()
    batcher = Batcher(runtime, chosen.limits, metrics)
    _warm_up(batcher, runtime)
    now = SystemClock().now
    worker = runtime if isinstance(runtime, WorkerRuntime) else None
    model = ServedModel(
        chosen.name,
        chosen.version,
        runtime.platform,
        runtime.signature,
        runtime.batches,
        chosen.labels,
        generates=worker is not None and worker.generates,
        embeds=worker is not None and worker.embeds,
    )
    generating = Generating(worker, model, chosen.limits.max_queue, now) if worker and (model.generates or model.embeds) else None
    try:
        listener = listen(chosen.port)
    except OSError as error:
        sys.stderr.write(f"error: port {chosen.port} cannot be had: {error}\n")
        return 5
    kept = chosen.sample_folder
    sampler = Sampler(kept, chosen.sample_rate, model, metrics, now) if kept and chosen.sample_rate else None
    app = App(model, batcher, metrics, chosen.bodies, now, generating, sampler)
    address = "{}:{}".format(*listener.getsockname())
    # What lives as long as the process need not be looked at again and again.
    gc.collect()
    gc.freeze()
    hello = f"{model.name}@{model.version} ({model.platform}) is served at http://{address}\n"
    server = Server(app, chosen.limits.deadline, hello)
    if worker is not None:
        worker.on_end = server.give_up
    try:
        server.run(sockets=[listener])
    finally:
        batcher.close()
        if sampler is not None:
            sampler.close()
    return 1 if server.gave_up else 0


def _load(chosen: options.Options) -> Runtime:
    found = folder.find(chosen.folder, chosen.format, chosen.runtime)
    if found.runtime == "onnx":
        return OnnxRuntime(found.entry, chosen.threads)
    return WorkerRuntime(found, chosen.python, chosen.threads)


def _warm_up(batcher: Batcher, runtime: Runtime) -> None:
    """Before anybody waits. A model that cannot take zeros is not broken for that."""
    if not runtime.signature.inputs:
        return
    try:
        batcher.warm_up(sample_of(runtime.signature))
    except ModelError as error:
        sys.stderr.write(f"warm-up with zeros failed, the first requests will be slower: {error}\n")


def sample_of(signature: Signature) -> list[Array]:
    """Inputs that the model may be run with: zeros, one row, 1 for every dimension of any length."""
    return [_zeros(spec) for spec in signature.inputs]


def _zeros(spec: TensorSpec) -> Array:
    shape = tuple(1 if length < 0 else length for length in spec.shape)
    if spec.datatype == "BYTES":
        return of_texts([b""] * int(np.prod(shape))).reshape(shape)
    return np.zeros(shape, DTYPES[spec.datatype])


if __name__ == "__main__":
    sys.exit(main())
