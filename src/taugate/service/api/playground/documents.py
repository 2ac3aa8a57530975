"""POST /playground/documents: finds documents by a part of their id, title or text, for people who miss one."""

import asyncio
import time
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from taugate.retrieval.documents.store import Document
from taugate.service.api.schemas import StrictRequest
from taugate.service.http.operation import Operation
from taugate.service.http.replies import model_reply
from taugate.service.lifecycle.serving import Serving

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts results does not need
    from taugate.retrieval.release.reader import Release

_MAX_MATCHES = 8  # as many as a person looks through below a field
_SECONDS = 0.3  # of reading, some 75,000 documents; a person who types waits no longer
_BATCH = 500  # documents between two looks at the clock, which take 2 ms
_SNIPPET, _BEFORE = 160, 40  # characters shown, and those before the match


class DocumentsRequest(StrictRequest):
    """A part of the id, title or text of a document; upper and lower case are the same."""

    text: str = Field(min_length=1, max_length=1024)


class DocumentMatch(BaseModel):
    """A document with a part of its text."""

    id: str = Field(description="id of the passage")
    title: str | None
    text: str = Field(description="part of the text that matches, else its beginning")


class DocumentsResponse(BaseModel):
    """Documents that match, at most eight: those whose id or title matches first, then by text."""

    documents: list[DocumentMatch]
    complete: bool = Field(
        description="false if not all documents were read: they are too many, or in an engine, where only a whole id "
        "is looked up"
    )


def documents_operation(serving: Serving) -> Operation:
    """Return the operation. It reads texts, so that keys with a filter may not use it."""
    one_at_a_time = asyncio.Semaphore(1)  # it holds a thread for _SECONDS

    async def find_documents(request: Request, body: DocumentsRequest) -> Response:
        """Find documents by a part of their id, title or text."""
        active = serving.active
        with active.in_flight:
            async with one_at_a_time:
                return model_reply(await asyncio.to_thread(documents_with, active.release, body.text))

    return Operation("playground_documents", find_documents, None)


def documents_with(release: "Release", text: str) -> DocumentsResponse:
    """Find the documents whose id, title or text contains `text`, as far as _SECONDS reach."""
    documents, part = release.documents, _folded(text)
    named: dict[str, Document] = {document.id: document for document in documents.at(documents.positions(text)[:1])}
    written: dict[str, Document] = {}
    end, complete = time.monotonic() + _SECONDS, release.engine is None
    for position in range(len(documents) if complete else 0):
        if position % _BATCH == 0 and time.monotonic() > end:
            complete = False
            break
        document = documents[position]
        if part in f"{document.id} {document.title or ''}".casefold():
            named[document.id] = document
        elif len(written) < _MAX_MATCHES and part in _folded(document.text):
            written[document.id] = document
        if len(named) >= _MAX_MATCHES:
            break
    matches = [*(named | written).values()][:_MAX_MATCHES]
    return DocumentsResponse(
        documents=[
            DocumentMatch(id=document.id, title=document.title, text=_snippet(document.text, part))
            for document in matches
        ],
        complete=complete,
    )


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _snippet(text: str, part: str) -> str:
    start = max(_folded(text).find(part) - _BEFORE, 0)
    shown = " ".join(text.split())[start : start + _SNIPPET]
    return f"…{shown}" if start else shown
