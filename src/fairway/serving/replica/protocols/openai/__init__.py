"""OpenAI's routes: completions, chat, embeddings, models; for models that generate or embed text."""

from fairway.serving.replica.protocols.openai.request import (
    EmbeddingRequest,
    TextRequest,
    read_chat,
    read_completion,
    read_embeddings,
)
from fairway.serving.replica.protocols.openai.response import (
    CompletionChoice,
    CompletionWriter,
    StopWordFilter,
    TextPiece,
    event_error,
    write_embeddings,
    write_error,
)

__all__ = [
    "CompletionChoice",
    "CompletionWriter",
    "EmbeddingRequest",
    "StopWordFilter",
    "TextPiece",
    "TextRequest",
    "event_error",
    "read_chat",
    "read_completion",
    "read_embeddings",
    "write_embeddings",
    "write_error",
]
