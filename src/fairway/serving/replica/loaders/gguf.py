"""Language models of llama.cpp, run by the installed package: xllamacpp or llama-cpp-python."""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import threading
from collections.abc import Iterator
from typing import Any

_CONTEXT = "FAIRWAY_CONTEXT"
"""Environment variable with the maximum tokens of a prompt and its answer together."""
_DEFAULT_CONTEXT = 8192
_AT_ONCE = 4
"""Maximum answers generated concurrently; more are queued in llama.cpp."""


def load(order: Any) -> Any:
    """Load the model with the installed package."""
    if importlib.util.find_spec("xllamacpp") is not None:
        return XllamacppModel(order)
    if importlib.util.find_spec("llama_cpp") is not None:
        return LlamaCppModel(order)
    raise ModuleNotFoundError("neither xllamacpp nor llama_cpp is installed", name="xllamacpp")


class _LlamaGenerator:
    """The common part of both packages: answers are generated in a thread and yielded piece by piece."""

    platform = "llama_cpp"

    def __init__(self) -> None:
        self.inputs: list[dict[str, Any]] = []
        self.outputs: list[dict[str, Any]] = []
        self.model = self

    def generate(self, prompt: Any, options: dict[str, Any]) -> Any:
        """Yield pieces of text, with log probabilities if requested."""
        request = self._asked(prompt, options)
        chunks: queue.Queue[Any] = queue.Queue()
        stopped = threading.Event()
        threading.Thread(target=self._run, args=(request, chunks, stopped), daemon=True).start()
        end: dict[str, Any] = {"finish_reason": "stop"}
        try:
            while True:
                chunk = chunks.get()
                if chunk is None:
                    break
                if isinstance(chunk, BaseException):
                    raise chunk
                yield from _pieces(chunk, end)
            yield end
        finally:
            stopped.set()

    def _asked(self, prompt: Any, options: dict[str, Any]) -> dict[str, Any]:
        """Return the request in the format of OpenAI."""
        request = {**options, "stream": True, "stream_options": {"include_usage": True}}
        is_chat = not isinstance(prompt, str)
        if "logprobs" in options:
            request.update(
                {"logprobs": True, "top_logprobs": options["logprobs"]} if is_chat else {"logprobs": options["logprobs"]}
            )
        request["messages" if is_chat else "prompt"] = prompt
        return request

    def _run(self, asked: dict[str, Any], chunks: Any, stopped: Any) -> None:
        try:
            self._ask(asked, chunks, stopped)
        except Exception as error:  # noqa: BLE001  # any error is passed to the reader of the queue
            chunks.put(error)
        chunks.put(None)

    def _ask(self, asked: dict[str, Any], chunks: Any, stopped: Any) -> None:
        raise NotImplementedError


class XllamacppModel(_LlamaGenerator):
    """llama.cpp's server within this process. Its listener is a socket in the scratch folder to which nothing connects."""

    generate_options = (
        "frequency_penalty", "logit_bias", "logprobs", "min_p", "presence_penalty", "response_format", "seed", "temperature",
        "top_k", "top_p",
    )  # fmt: skip

    def __init__(self, order: Any) -> None:
        super().__init__()
        import secrets  # noqa: PLC0415

        import xllamacpp  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415

        params = xllamacpp.CommonParams()
        params.model.path = order.entry
        params.n_ctx = context()
        params.n_parallel = _AT_ONCE
        params.kv_unified = True
        params.cpuparams.n_threads = order.threads
        params.cpuparams_batch.n_threads = order.threads
        params.verbosity = 1
        params.ui = False
        params.endpoint_slots = False
        params.api_keys = [secrets.token_hex(32)]
        params.hostnames = [os.path.join(os.environ.get("TMPDIR", "/tmp"), f"llama-{os.getpid()}.sock")]
        if order.device == "cpu":
            params.n_gpu_layers = 0
        self._server = xllamacpp.Server(params)

    def _ask(self, asked: dict[str, Any], chunks: Any, stopped: Any) -> None:
        def give(chunk: Any) -> bool:
            chunks.put(json.loads(chunk) if isinstance(chunk, str) else chunk)
            return bool(stopped.is_set())

        handle = self._server.handle_chat_completions if "messages" in asked else self._server.handle_completions
        handle(asked, give)


class LlamaCppModel(_LlamaGenerator):
    """llama.cpp through llama-cpp-python: one answer at a time."""

    generate_options = (
        "frequency_penalty", "logit_bias", "min_p", "presence_penalty", "response_format", "seed", "temperature",
        "top_k", "top_p",
    )  # fmt: skip

    def __init__(self, order: Any) -> None:
        super().__init__()
        import llama_cpp  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415

        layers = 0 if order.device == "cpu" else -1
        self._llama = llama_cpp.Llama(
            order.entry, n_ctx=context(), n_threads=order.threads, n_gpu_layers=layers, verbose=False, logits_all=False
        )
        self._lock = threading.Lock()

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return len(self._llama.tokenize(text.encode(), add_bos=False))

    def _ask(self, asked: dict[str, Any], chunks: Any, stopped: Any) -> None:
        asked = {name: value for name, value in asked.items() if name != "stream_options"}
        ask = self._llama.create_chat_completion if "messages" in asked else self._llama.create_completion
        if "messages" not in asked:
            asked.pop("response_format", None)
        with self._lock:
            for chunk in ask(**asked):
                if stopped.is_set():
                    return
                chunks.put(chunk)


def context() -> int:
    """Return the maximum tokens of a prompt and its answer together."""
    setting = os.environ.get(_CONTEXT, "")
    if setting and not setting.isdigit():
        raise ValueError(f"{_CONTEXT} is {setting!r}; a whole number of tokens is needed")
    return int(setting or _DEFAULT_CONTEXT)


def _pieces(chunk: dict[str, Any], end: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the pieces in an event of OpenAI's stream; `end` receives the finish reason and the token counts, which come last."""
    if "error" in chunk or "code" in chunk:  # llama.cpp also reports errors as events
        error = chunk.get("error", chunk)
        message = error.get("message", error) if isinstance(error, dict) else error
        raise ValueError(f"llama.cpp refused: {message}")
    for choice in chunk.get("choices", ()):
        text = choice.get("text") or (choice.get("delta") or {}).get("content") or ""
        logprob = ((choice.get("logprobs") or {}).get("content") or [None])[0]
        details = {}
        if logprob:
            top = [
                {"token": candidate["token"], "logprob": candidate["logprob"]} for candidate in logprob.get("top_logprobs", ())
            ]
            details = {"logprob": logprob["logprob"], "top_logprobs": top}
        if text:
            yield {"text": text, **details}
        if choice.get("finish_reason"):
            end["finish_reason"] = choice["finish_reason"]
    if chunk.get("usage"):
        end["usage"] = {name: chunk["usage"].get(name, 0) for name in ("prompt_tokens", "completion_tokens")}
