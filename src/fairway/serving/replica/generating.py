"""Text from a model that generates: whole, or as a stream that ends when nobody listens."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from fairway.serving.replica.model import Answer, ServedModel, Stream
from fairway.serving.replica.problem import RequestError
from fairway.serving.replica.protocols import openai
from fairway.serving.replica.protocols.openai import Stops, Wish, Writer
from fairway.serving.replica.runtimes.process import WorkerRuntime, failure


class Generating:
    """Answers the questions of OpenAI's clients with one worker.

    Promises: a question that nobody waits for any more stops to cost anything with its next piece.
    """

    refusal = staticmethod(openai.write_error)

    def __init__(self, runtime: WorkerRuntime, model: ServedModel, limit: int, now: Callable[[], float]) -> None:
        self._runtime = runtime
        self._model = model
        self._limit = limit
        self._now = now
        self._numbers = itertools.count(1)
        self._writing = 0

    async def embed(self, asked: tuple[list[str], bool]) -> Answer | Stream:
        """`embeddings` of texts, as base64 or not."""
        texts, as_base64 = asked
        vectors = await asyncio.to_thread(self._runtime.embed, texts)
        tokens = sum(await asyncio.to_thread(self._runtime.count, texts)) if self._runtime.counts else None
        return openai.write_embeddings(self._model, vectors, as_base64=as_base64, tokens=tokens)

    async def write(self, wish: Wish) -> Answer | Stream:
        """`completions` and `chat/completions`."""
        if self._writing >= self._limit:
            message = f"{self._writing} answers are being written, which is the limit"
            raise RequestError(429, message, fix="try again later", retry_after=1.0)
        writer = Writer(wish, self._model, f"{next(self._numbers)}-{int(1000 * self._now())}", int(self._now()))
        if wish.stream:
            return Stream(self._events(wish, writer))
        texts = []
        for prompt in wish.prompts:
            parts, reason = [], "stop"
            async with aclosing(self._pieces(prompt, wish)) as pieces:
                async for text, ended in pieces:
                    parts.append(text)
                    reason = ended or reason
            texts.append(("".join(parts), reason))
        return writer.whole(texts, await self._usage(wish, [text for text, _ in texts]))

    async def _events(self, wish: Wish, writer: Writer) -> AsyncGenerator[bytes]:
        parts: list[str] = []
        try:
            yield writer.first()
            async with aclosing(self._pieces(wish.prompts[0], wish)) as pieces:
                async for text, ended in pieces:
                    if text:
                        parts.append(text)
                        yield writer.piece(text)
                    if ended:
                        yield writer.last(ended)
            if wish.usage and (usage := await self._usage(wish, ["".join(parts)])) is not None:
                yield writer.used(usage)
        except RequestError as error:
            yield openai.event_error(error)
        yield openai.DONE

    async def _pieces(self, prompt: Any, wish: Wish) -> AsyncGenerator[tuple[str, str]]:
        """Pieces of text; the last one with why it ended."""
        loop = asyncio.get_running_loop()
        heads: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        stops = Stops(wish.stop)

        def give(head: dict[str, Any], _: object) -> None:
            loop.call_soon_threadsafe(heads.put_nowait, head)

        self._writing += 1
        number = 0
        try:
            number = await asyncio.to_thread(self._runtime.generate, prompt, wish.options, give)
            while True:
                head = await heads.get()
                if "error" in head:
                    raise failure(head)
                if "end" in head:
                    yield stops.rest(), head["end"]
                    return
                text = stops.feed(head["piece"])
                if stops.stopped:
                    yield text, "stop"
                    return
                yield text, ""
        finally:
            self._writing -= 1
            self._runtime.cancel(number)

    async def _usage(self, wish: Wish, texts: list[str]) -> dict[str, int] | None:
        """Only where the model counts: a number that nobody counted would be made up."""
        if not self._runtime.counts:
            return None
        asked = [message["content"] for message in wish.prompts[0]] if wish.chat else list(wish.prompts)
        counts = await asyncio.to_thread(self._runtime.count, [*asked, *texts])
        before, after = sum(counts[: len(asked)]), sum(counts[len(asked) :])
        return {"prompt_tokens": before, "completion_tokens": after, "total_tokens": before + after}
