"""The playground: its page and its files, which are public, and what only the page requests, with a key."""

import asyncio
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import orjson
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from taugate.policy.policy import POLICIES
from taugate.retrieval.documents.store import Document
from taugate.retrieval.query import Query
from taugate.service.api.pages import PAGE_HEADERS, PageFile, read_page
from taugate.service.api.schemas import SearchFields, StrictRequest
from taugate.service.api.search import read_query
from taugate.service.errors import Invalid, NotFound
from taugate.service.http.exchange import EncodedJsonResponse, json_reply, model_reply
from taugate.service.http.operation import ENDPOINTS, Operation
from taugate.service.lifecycle.serving import Serving
from taugate.service.pipeline.record import search_fields
from taugate.service.settings import Settings
from taugate.storage.files import Json

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts results does not need
    from taugate.retrieval.reader import Release


# The parts of the page's script, in order: a part uses declarations of earlier parts, and the last one starts the page.
_SCRIPT = (
    *("computing", "elements", "markdown", "service", "asking", "results", "threshold", "questions", "new_questions"),
    *("panels", "start"),
)
_FILES = {
    "": ["app.html"],
    "playground/app.css": ["app.css"],
    "playground/app.js": [f"script/{part}.js" for part in _SCRIPT],
}

_MAX_MATCHES = 8  # as many as a person looks through below a field
_SECONDS = 0.3  # of reading, some 75,000 documents; a person who types waits no longer
_BATCH = 500  # documents between two looks at the clock, which take 2 ms
_SNIPPET, _BEFORE = 160, 40  # characters shown, and those before the match

_PAGE = 1000  # questions of a reply, some 200 kB
_OFFSET: TypeAdapter[int] = TypeAdapter(Annotated[int, Field(ge=0, le=2**31 - 1)])

# The browser revalidates its copy each time, because the page must match the version of the service.
_CACHE_HEADERS = {"Cache-Control": "no-cache"}


def _policies() -> bytes:
    """Write what the script needs of each kind of policy: its scale, the span of τ, and what it compares with τ."""
    kinds = (
        f'{kind}: {{scale: "{score.scale}", span: {[*score.span]}, of: (score, relevance, best) => {score.script}}}'
        for kind, score in POLICIES.items()
    )
    return f"const POLICIES = {{{', '.join(kinds)}}};\n".encode()


def page_files() -> dict[str, PageFile]:
    """Read the files of the page, by path. The page itself has the path "", and links to the other two."""
    return read_page("taugate_playground", _FILES, _policies())


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


def new_questions_operation(serving: Serving) -> Operation:
    """Return the operation. It needs the scope of operators, because the questions are those of other callers."""

    async def new_questions(request: Request) -> Response:
        """Get at most ten groups of questions; null if the service keeps no texts (TAUGATE_QUERY_LOG_TEXTS)."""
        drift = serving.active.drift
        groups = None if drift is None else drift.new_questions
        return json_reply({"questions": None if groups is None else [asdict(group) for group in groups]})

    return Operation("playground_new_questions", new_questions, None)


def questions_operation(serving: Serving) -> Operation:
    """Return the operation. Any key without a filter that may search may read the questions."""

    async def questions(request: Request) -> Response:
        """Get the questions of the calibration of a release, `current` or `shadow`, 1,000 from an `offset` on."""
        try:
            offset = _OFFSET.validate_python(request.query_params.get("offset", "0"))
        except ValidationError as error:
            raise Invalid("offset: a whole number from 0") from error
        side = request.query_params.get("release", "current")
        if side not in {"current", "shadow"}:
            raise Invalid("release: current or shadow")
        release = shadow_release(serving) if side == "shadow" else serving.active.release
        return EncodedJsonResponse(_page(release, offset))

    return Operation("playground_questions", questions, None)


def shadow_release(serving: Serving) -> "Release":
    """Return the shadow release.

    Raises:
        NotFound: If there is none.
    """
    if serving.shadowing.active is None:
        raise NotFound("no shadow release is loaded; name one with taugate release shadow ID")
    return serving.shadowing.active.release


def _page(release: "Release", offset: int) -> bytes:
    """Write the thresholds of a release and a page of its questions, whose lines are JSON already."""
    manifest = release.manifest
    score, rho = manifest.answer_threshold or (None, None)
    facts = {
        "release": manifest.release_id,
        "policy": manifest.policy.kind,
        "threshold": None if manifest.policy.threshold is None else manifest.policy.tau,
        "rho": rho,
        "score": score,
        "k": manifest.policy.k,
        "total": len(release.questions),
    }
    page = b",".join(release.questions[offset : offset + _PAGE])
    return orjson.dumps(facts)[:-1] + b',"questions":[' + page + b"]}"


def shadow_operation(settings: Settings, serving: Serving) -> Operation:
    """Return the operation, which is charged like a search. Its searches do not count as traffic."""
    one_at_a_time = asyncio.Semaphore(1)  # the shadow has one thread; searches of the current release come first

    async def search_shadow(request: Request, body: SearchFields) -> Response:
        """Search the shadow release, without caches, metrics and drift detection."""
        release = shadow_release(serving)
        query = read_query(body, release, settings)
        async with one_at_a_time:
            return json_reply(await asyncio.to_thread(_search, release, query))

    return Operation("playground_shadow", search_shadow, None)


def _search(release: "Release", query: Query) -> dict[str, Json]:
    (answer,) = release.retriever.search([query])
    documents = answer.read(release.documents)
    return search_fields(answer, documents, release.manifest)


def playground_operations(settings: Settings, serving: Serving) -> list[Operation]:
    """Return the operations of the page, of its files, and of what only the page requests."""
    files, names = page_files(), ("playground_style", "playground_script")
    page = _operation("playground", files[""])
    return [
        page,
        *(_operation(name, files[ENDPOINTS[name].path.removeprefix("/")]) for name in names),
        questions_operation(serving),
        new_questions_operation(serving),
        documents_operation(serving),
        shadow_operation(settings, serving),
    ]


def _operation(name: str, file: PageFile) -> Operation:
    headers = {**PAGE_HEADERS, **_CACHE_HEADERS, "ETag": file.etag}

    async def page_file(request: Request) -> Response:
        """A file of the playground."""
        cached = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
        if cached & {file.etag, "*"}:
            return Response(None, 304, headers)
        return Response(file.content, 200, {**headers, "Content-Type": file.media_type})

    described = {"content": {file.media_type.partition(";")[0]: {"schema": {"type": "string"}}}}
    return Operation(name, page_file, None, described=described, response_class=Response)
