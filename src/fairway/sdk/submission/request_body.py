"""Request bodies of submit and apply, made from the caller's document in any form."""

from __future__ import annotations

import json
import os
import sys
from os import PathLike
from typing import Any

import yaml

from fairway.errors import UsageError
from fairway.sdk.run_option import RunOptions
from fairway.sdk.submission import document
from fairway.spec.kind import Document

_TEXT_MARKS = ("\n", "{")


def read(what: str | PathLike[str] | dict[str, Any] | Document) -> tuple[str, str, str]:
    """Return the text of a document, the folder that its relative paths start from, and its file."""
    if isinstance(what, Document):
        return what.model_dump_json(by_alias=True, exclude_unset=True), os.getcwd(), ""
    if isinstance(what, dict):
        return json.dumps(what), os.getcwd(), ""
    if isinstance(what, str) and any(mark in what for mark in _TEXT_MARKS):
        return what, os.getcwd(), ""
    text, folder = document.read_documents(os.fspath(what))
    return text, folder, os.fspath(what)


def submit_body(text: str, folder: str, file: str) -> dict[str, Any]:
    """Return the body of a submit for a document's text."""
    origin = document.make_run_origin(folder, interpreter=sys.executable)
    body: dict[str, Any] = {"documents": text, "file": file, "origin": origin}
    return {**body, "environment": document.read_environment(in_place=document.is_in_place(text))}


def apply_body(text: str, folder: str, file: str) -> dict[str, Any]:
    """Return the body of an apply for the text of documents."""
    origin = document.make_origin(folder, interpreter=sys.executable)
    return {"documents": text, "file": file, "folder": folder, "origin": origin}


def with_wishes(body: dict[str, Any], rendered: bytes, wishes: RunOptions) -> dict[str, Any]:
    """Return the body with the wishes merged into the document; `rendered` is its Kubernetes spelling."""
    documents = list(yaml.safe_load_all(rendered))
    if len(documents) != 1:
        message = f"{body['file'] or 'the text'} holds {len(documents)} documents, and keywords change only one"
        raise UsageError(message, fix="submit them one by one")
    return {**body, "documents": "", "document": document.change_document(documents[0], wishes)}
