"""Text generation: whole answers, or streams that stop when the client disconnects."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Any

from fairway.serving.replica.model.served_model import ReplicaResponse, ServedModel, StreamingResponse
from fairway.serving.replica.protocols import openai
from fairway.serving.replica.protocols.openai import (
    CompletionChoice,
    CompletionWriter,
    EmbeddingRequest,
    StopWordFilter,
    TextPiece,
    TextRequest,
)
from fairway.serving.replica.protocols.openai.response import DONE
from fairway.serving.replica.request_error import ModelError, RequestError
from fairway.serving.replica.runtimes.worker_runtime import WorkerRuntime, failure


class TextGenerator:
    """Answers OpenAI requests with one worker.

    Promises: a request whose client has disconnected is cancelled at its next piece.
    """

    refusal = staticmethod(openai.write_error)

    def __init__(self, runtime: WorkerRuntime, model: ServedModel, limit: int, now: Callable[[], float]) -> None:
        self._runtime = runtime
        self._model = model
        self._limit = limit
        self._now = now
        self._numbers = itertools.count(1)
        self._writing = 0

    async def embed(self, asked: EmbeddingRequest) -> ReplicaResponse | StreamingResponse:
        """Answer `embeddings`, as base64 or as numbers."""
        texts = asked.texts
        vectors = await asyncio.to_thread(self._runtime.embed, texts, asked.options)
        dimensions = asked.options.get("dimensions")
        if len(vectors.shape) != 2 or len(vectors) != len(texts) or dimensions not in (None, vectors.shape[-1]):
            expected = f" with {dimensions} dimensions" if dimensions else ""
            message = f"embed() returned an array of shape {list(vectors.shape)} for {len(texts)} texts{expected}"
            raise ModelError(500, message, fix="return one vector for each text")
        tokens = sum(await asyncio.to_thread(self._runtime.count, texts)) if self._runtime.counts else None
        return openai.write_embeddings(self._model, vectors, as_base64=asked.as_base64, tokens=tokens)

    async def write(self, request: TextRequest) -> ReplicaResponse | StreamingResponse:
        """Answer `completions` and `chat/completions`."""
        if self._writing >= self._limit:
            message = f"{self._writing} answers are being written, which is the limit"
            raise RequestError(429, message, fix="try again later", retry_after=1.0)
        writer = CompletionWriter(request, self._model, f"{next(self._numbers)}-{int(1000 * self._now())}", int(self._now()))
        if request.stream:
            return StreamingResponse(self._events(request, writer))
        choices = []
        for prompt, number in _answers(request):
            async with aclosing(self._pieces(prompt, request, number)) as pieces:
                choices.append(CompletionChoice([piece async for piece in pieces]))
        return writer.whole(choices, await self._usage(request, choices))

    async def _events(self, request: TextRequest, writer: CompletionWriter) -> AsyncGenerator[bytes]:
        choices: list[CompletionChoice] = []
        try:
            for index, (prompt, number) in enumerate(_answers(request)):
                choices.append(CompletionChoice([]))
                yield writer.first(index)
                async with aclosing(self._pieces(prompt, request, number)) as pieces:
                    async for piece in pieces:
                        choices[-1].pieces.append(piece)
                        if piece.text or piece.more:
                            yield writer.piece(piece, index)
                        if piece.reason:
                            yield writer.last(piece.reason, index)
            if request.usage and (usage := await self._usage(request, choices)) is not None:
                yield writer.used(usage)
        except RequestError as error:
            yield openai.event_error(error)
        yield DONE

    async def _pieces(self, prompt: Any, request: TextRequest, number: int) -> AsyncGenerator[TextPiece]:
        """Yield the pieces of one answer; the last one has the finish reason."""
        loop = asyncio.get_running_loop()
        heads: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        stops = StopWordFilter(request.stop)

        def give(head: dict[str, Any], _: object) -> None:
            loop.call_soon_threadsafe(heads.put_nowait, head)

        if request.echo:
            yield TextPiece(prompt, {})
        self._writing += 1
        request_id = 0
        try:
            request_id = await asyncio.to_thread(self._runtime.generate, prompt, _options(request, number), give)
            while True:
                head = await heads.get()
                if "error" in head:
                    raise failure(head)
                if "end" in head:
                    yield TextPiece(stops.rest(), {"unrated": True}, head["end"], head.get("usage"))
                    return
                metadata = head.get("more") or {}
                if "logprob" in metadata:
                    metadata.setdefault("token", head["piece"])
                text = stops.feed(head["piece"])
                yield TextPiece(text, metadata, "stop" if stops.stopped else "")
                if stops.stopped:
                    return
        finally:
            self._writing -= 1
            self._runtime.cancel(request_id)

    async def _usage(self, request: TextRequest, choices: list[CompletionChoice]) -> dict[str, int] | None:
        """Return token counts only if the model counts tokens; otherwise they would be invented."""
        reported = [piece.usage for choice in choices for piece in choice.pieces if piece.usage]
        if reported and len(reported) == len(choices):
            completion_tokens = sum(usage.get("completion_tokens", 0) for usage in reported)
            first = reported[:: request.choices]  # a prompt with several answers is processed once
            prompt_tokens = sum(usage.get("prompt_tokens", 0) for usage in first)
        elif self._runtime.counts:
            inputs = [_words(message["content"]) for message in request.prompts[0]] if request.chat else list(request.prompts)
            texts = [choice.text for choice in choices]
            if request.echo:
                prompts = [prompt for prompt, _ in _answers(request)]
                texts = [text.removeprefix(prompt) for text, prompt in zip(texts, prompts, strict=True)]
            counts = await asyncio.to_thread(self._runtime.count, [*inputs, *texts])
            prompt_tokens, completion_tokens = sum(counts[: len(inputs)]), sum(counts[len(inputs) :])
        else:
            return None
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        }


def _answers(request: TextRequest) -> Iterator[tuple[Any, int]]:
    """Yield the prompt of each answer, and the index of the answer for that prompt."""
    return itertools.product(request.prompts, range(request.choices))


def _options(request: TextRequest, number: int) -> dict[str, Any]:
    """Return the options of one answer. Answers with the same seed would be equal, so each gets its own."""
    seed = request.options.get("seed")
    return request.options if seed is None or not number else {**request.options, "seed": seed + number}


def _words(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
