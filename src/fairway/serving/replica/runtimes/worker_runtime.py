"""Runs a model in a worker process under the user's interpreter; tensors are sent over a socket."""

from __future__ import annotations

import itertools
import json
import os
import queue
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairway.errors import UsageError
from fairway.serving.replica import confinement, worker
from fairway.serving.replica.model.datatype import DTYPES, Array
from fairway.serving.replica.model.served_model import ModelAbilities
from fairway.serving.replica.model.version_folder import ModelFolderContent
from fairway.serving.replica.request_error import ModelError
from fairway.serving.replica.runtimes.runtime import takes_batches
from fairway.state.model import ModelSignature, TensorSpec

VARIABLE = "FAIRWAY_CONFINE"
_SECRET = re.compile(r"^(FAIRWAY|MLFLOW)_|TOKEN|SECRET|PASSWORD|CREDENTIAL|_KEY", re.IGNORECASE)
"""Environment variables hidden from a confined worker, because a model could put them into its answers."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "LOKY_MAX_CPU_COUNT")
"""Variables that set the number of threads of libraries; the service's `env` takes precedence."""

Give = Callable[[worker.Head, dict[str, Array]], None]
"""Receives the replies to a request, on the reader's thread. A head with `error` is the last one."""


class WorkerRuntime:
    """A worker process.

    Promises: when the worker ends, all waiting requests get an error and `ended` is set; nothing hangs. A model whose format is
    meant to be pure data (torch.export, SavedModel) runs confined; `confined` describes how, and is logged as well.
    """

    quick = False  # the event loop must not wait for another process

    def __init__(self, found: ModelFolderContent, python: str = "", threads: int = 1) -> None:
        ours, theirs = socket.socketpair()
        self._wire = ours
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Give] = {}
        self.ended = ""
        """Why the worker has ended; empty while it runs."""
        self.on_end: Callable[[], None] | None = None
        self._reader: threading.Thread | None = None
        self._scratch = tempfile.mkdtemp(prefix="fairway-worker-") if is_confined(found.runtime) else ""
        self.confined = "not confined: a Python class may use the network and files; FAIRWAY_CONFINE=always confines it"
        """Description of how the worker is confined."""
        if found.runtime != "python":
            self.confined = "not confined: FAIRWAY_CONFINE=never"
        try:
            self._start(found, python, threads, theirs)
            self._know(found)
        except BaseException:
            self._forget_scratch()
            raise
        self._reader = threading.Thread(target=self._read, name="worker", daemon=True)
        self._reader.start()

    def _start(self, found: ModelFolderContent, python: str, threads: int, theirs: socket.socket) -> None:
        wire = str(theirs.fileno())
        command = [str(Path(worker.__file__)), "--socket", wire, "--threads", str(threads), "--loader", found.runtime]
        command += ["--entry", str(found.entry), "--root", str(found.root), "--signature", json.dumps(asdict(found.signature))]
        if found.trusted:
            command.append("--trusted")
        self._python = python or sys.executable
        environment = dict(os.environ)
        if self._scratch:
            folder = found.root if found.root != Path() else found.entry.parent
            confinement_command = [
                str(Path(confinement.__file__)),
                "--wire",
                wire,
                "--scratch",
                self._scratch,
                "--folder",
                str(folder),
            ]
            command = [*confinement_command, *command]
            environment = {name: value for name, value in environment.items() if not _SECRET.search(name)}
            _load_drivers()
        environment.setdefault("JOBLIB_MULTIPROCESSING", "0")  # a confined process cannot use semaphores
        for name in _THREADS:
            environment.setdefault(name, str(threads))
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [self._python, *command],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env=environment,
                )
            except OSError as error:
                message = f"the interpreter {python!r} cannot be started: {error}"
                raise UsageError(message, fix="name one with --python") from None

    def _forget_scratch(self) -> None:
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _know(self, found: ModelFolderContent) -> None:
        """Wait until the model is loaded, and keep the description of it."""
        first = worker.receive(self._wire)
        if self._scratch and first is not None and "confined" in first[0]:
            # Sent before anything of the model was read, so the model cannot have forged it.
            self.confined = str(first[0]["confined"])
            first = worker.receive(self._wire)
        sys.stderr.write(f"worker: {self.confined}\n")
        if first is None or "error" in first[0]:
            self._process.wait()
            reason = first[0]["error"] if first else f"it ended with {self._process.returncode}"
            message = f"{found.entry}: the worker could not load it: {reason}"
            if first and first[0].get("missing"):
                needed = ", ".join(found.packages) or first[0]["missing"]
                message = f"{found.entry}: it needs {needed}, and {self._python} lacks the module {first[0]['missing']}"
                raise UsageError(message, fix=f"install it there: {self._python} -m pip install {first_of(found.packages)}")
            raise UsageError(message, fix="see its output above, and check that the framework is installed for --python")
        description = first[0]
        self.platform: str = description["platform"]
        self.abilities = ModelAbilities(
            generates=description["generate"],
            embeds=description["embed"],
            counts=description["count"],
            generate_options=frozenset(description["generate_options"]),
            embed_options=frozenset(description["embed_options"]),
        )
        self.generates, self.embeds, self.counts = description["generate"], description["embed"], description["count"]
        self.independent: bool = description.get("independent", False)
        """Whether the library computes each row independently, for any model."""
        self.signature = ModelSignature(_specs(description["inputs"]), _specs(description["outputs"]))
        if not self.signature.inputs and not self.generates and not self.embeds:
            self.close()
            message = f"{found.entry}: the inputs and outputs of the model are unknown"
            raise UsageError(message, fix="declare the signature in fairway.json, or as `signature` in the class")
        self.batches = takes_batches(self.signature)

    def run(self, inputs: list[Array]) -> list[Array]:
        """Predict; blocks until the worker replies."""
        specs = self.signature.inputs
        arrays = tuple((spec.name, spec.datatype, array) for spec, array in zip(specs, inputs, strict=True))
        tensors = self._answer({"do": "predict"}, arrays)[1]
        return [_of_type(spec, tensors[spec.name]) for spec in self.signature.outputs]

    def embed(self, texts: list[str], options: dict[str, Any]) -> Array:
        """Return one vector per text; blocks until the worker replies."""
        return self._answer({"do": "embed", "texts": texts, "options": options})[1]["embeddings"]

    def count(self, texts: list[str]) -> list[int]:
        """Return the number of tokens of each text; blocks until the worker replies."""
        counts: list[int] = self._answer({"do": "count", "texts": texts})[0]["counts"]
        return counts

    def generate(self, prompt: Any, options: dict[str, Any], give: Give) -> int:
        """Start to generate; pieces, the end or an error are passed to `give`.

        Returns the number with which the generation can be cancelled.
        """
        return self._put({"do": "generate", "prompt": prompt, "options": options}, (), give)

    def cancel(self, number: int) -> None:
        """Cancel a generation."""
        if self._waiting.pop(number, None) is not None and not self.ended:
            self._put({"do": "cancel", "which": number}, (), None)

    def close(self) -> None:
        """End the worker, which exits when its socket is closed."""
        self.on_end = None
        self._wire.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._reader is not None:
            # If the descriptor were closed while the thread uses it, its next read could hit another connection's.
            self._reader.join()
        self._wire.close()
        self._forget_scratch()

    def _answer(self, head: worker.Head, arrays: tuple[tuple[str, str, Array], ...] = ()) -> tuple[worker.Head, dict[str, Array]]:
        answers: queue.SimpleQueue[tuple[worker.Head, dict[str, Array]]] = queue.SimpleQueue()
        number = self._put(head, arrays, lambda head, tensors: answers.put((head, tensors)))
        answer = answers.get()
        self._waiting.pop(number, None)
        if "error" in answer[0]:
            raise failure(answer[0])
        return answer

    def _put(self, head: worker.Head, arrays: tuple[tuple[str, str, Array], ...], give: Give | None) -> int:
        number = next(self._numbers)
        if give is not None:
            self._waiting[number] = give
        try:
            with self._lock:
                worker.send(self._wire, {"id": number, **head}, arrays)
        except OSError:
            pass  # the reader also detects the end, and reports it to all requests
        if self.ended and give is not None:
            give({"error": self.ended, "status": 503}, {})
        return number

    def _read(self) -> None:
        while True:
            try:
                reply = worker.receive(self._wire)
            except OSError:
                reply = None
            if reply is None:
                break
            give = self._waiting.get(reply[0]["id"])
            if give is not None:
                give(*reply)
        code = self._process.wait()
        self.ended = f"the worker process ended with {code}"
        for give in list(self._waiting.values()):
            give({"error": self.ended, "status": 503}, {})
        if self.on_end is not None:
            self.on_end()


def is_confined(runtime: str) -> bool:
    """Whether the worker of a runtime runs confined, depending on the runtime and `FAIRWAY_CONFINE`."""
    setting = os.environ.get(VARIABLE, "") or "auto"
    if setting not in ("auto", "always", "never"):
        message = f"{VARIABLE} is {setting!r}"
        raise UsageError(message, fix="use auto (all but Python classes), always or never")
    return setting == "always" or (setting == "auto" and runtime != "python")


def first_of(packages: tuple[str, ...]) -> str:
    """Return what to install: the first package of each group."""
    return " ".join(f"'{group.partition(' or ')[0]}'" for group in packages) or "it"


def _load_drivers() -> None:
    """Create the device files of the GPU driver, which needs rights that a confined worker cannot get."""
    if os.path.exists("/dev/nvidiactl") and not os.path.exists("/dev/nvidia-uvm"):
        try:
            subprocess.run(["nvidia-modprobe", "-c", "0", "-u"], stdin=subprocess.DEVNULL, check=False, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            pass  # the framework reports what is missing


def failure(head: worker.Head) -> ModelError:
    """Return the error that a worker reported."""
    status = head.get("status") or (400 if head.get("bad") else 500)
    return ModelError(status, f"the model failed: {str(head['error'])[:1000]}")


def _of_type(spec: TensorSpec, array: Array) -> Array:
    return array if spec.datatype == "BYTES" else array.astype(DTYPES[spec.datatype], copy=False)


def _specs(told: list[worker.Told]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(tensor["name"], tensor["datatype"], tuple(tensor["shape"])) for tensor in told)
