"""OpenAI's routes: completions, chat, embeddings, models; for models that generate or embed text."""

from fairway.serving.replica.protocols.openai.answers import (
    Choice,
    Piece,
    Stops,
    Writer,
    event_error,
    write_embeddings,
    write_error,
)
from fairway.serving.replica.protocols.openai.requests import (
    EmbeddingRequest,
    TextRequest,
    read_chat,
    read_completion,
    read_embeddings,
)

__all__ = [
    "Choice",
    "EmbeddingRequest",
    "Piece",
    "Stops",
    "TextRequest",
    "Writer",
    "event_error",
    "read_chat",
    "read_completion",
    "read_embeddings",
    "write_embeddings",
    "write_error",
]
