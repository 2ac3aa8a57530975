"""Request bodies: read within limits and parsed as JSON; large ones are divided, so that no other request waits.

Pydantic validates JSON while parsing it. FastAPI's own handler would resolve dependencies for every request, and parse
a body before validating it.

Large bodies: divided into small ones, so that no other request waits for the whole of one. Brackets and commas outside
of strings show where the items of a list end, before an object is made of any of them. The small bodies are the whole
one with some of its items each, so they are validated as any other body is.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from starlette.types import Receive

from taugate.service.errors import BadJson, ClientGone, Invalid, TooLarge
from taugate.service.http.operation import ENDPOINTS, BodyLimit
from taugate.service.settings.groups import RequestSettings

# A longer name is no misspelling, and comparing it would take long. The longest path and field have half as many.
_MAX_CHARS = 60
# Names that other services use for ours: probes of Kubernetes and load balancers, and the search of vector stores.
_PATHS = {
    "/livez": "/health /healthz /ping /alive",
    "/readyz": "/ready /status",
    "/search": "/query /retrieve",
    "/search/batch": "/batch",
    "/admin/reload": "/reload",
    "/docs": "/swagger /redoc",
    "/playground": "/ui",
}
# Fields of other search APIs: those of Qdrant, Milvus, Weaviate, Pinecone, OpenAI, Dify and Elasticsearch.
_FIELDS = {
    "query": "q question text input",
    "k": "top_k topk limit size n_results max_num_results",
    "filter": "where filters expr",
    "threshold": "tau min_score score_threshold",
    "document_id": "id doc_id",
}

# Describing an error takes a microsecond and some 300 bytes, and a crafted body of 1 MiB has a hundred thousand.
_MAX_DESCRIBED_FAULTS = 10
_MAX_LISTED_FAULTS = 3  # enough to correct a body, while the message remains shorter than the body
_MAX_NAME_CHARS = 40

MAX_SMALL_BYTES = 16 << 10  # of a body that takes at most some milliseconds, whatever is in it
# Values of a piece, which takes about a millisecond, and of an item that is alone in one: a query may have a vector.
_PIECE_VALUES, _MAX_VALUES = 1 << 12, 1 << 14
_STEP, _OTHER = {b"[": 1, b"{": 1, b",": 0, b"]": -1, b"}": -1}, 2
_STEPS = np.array([_STEP.get(bytes([code]), _OTHER) for code in range(256)], dtype=np.int8)


def suggest_path(path: str, paths: Collection[str]) -> str:
    """Return "; did you mean PATH?" with the path of the service that is most like an unknown one, or ""."""
    return _sentence(path.rstrip("/").lower(), paths, _PATHS)


def suggest_field(name: str, model: type[BaseModel]) -> str:
    """Return "; did you mean FIELD?" with the field of a request that is most like an unknown one, or ""."""
    return _sentence(name, _fields(model), _FIELDS)


@cache
def _fields(model: type[BaseModel]) -> frozenset[str]:
    """Return the names of all fields of a request, those of the objects in it included."""
    schema = model.model_json_schema()
    objects = [schema, *schema.get("$defs", {}).values()]
    return frozenset(name for described in objects for name in described.get("properties", ()))


def _sentence(name: str, known: Collection[str], others: Mapping[str, str]) -> str:
    if len(name) > _MAX_CHARS:
        return ""
    meant = [own for own, names in others.items() if name in names.split() and own in known]
    matches = meant or get_close_matches(name, known, n=1)
    return f"; did you mean {matches[0]}?" if matches else ""


async def read_body(
    receive: Receive, limits: RequestSettings, limit: BodyLimit, declared: bytes, count: Callable[[int], None]
) -> bytearray:
    """Return the body of a request."""
    # Bytes are counted as they arrive, whatever Content-Length says, so a body over a limit is refused before it
    # is read, or before it is in memory. (Starlette's `max_body_size` replies in plain text, and limits single
    # bodies only.)
    max_bytes: int = getattr(limits, limit)
    is_too_large = declared.isdigit() and int(declared) > max_bytes
    body, has_more = bytearray(), True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone("the connection was closed before the whole body was received")
        part = message.get("body", b"")
        if is_too_large or len(body) + len(part) > max_bytes:
            raise TooLarge(f"the body is over {max_bytes} bytes (TAUGATE_{limit.upper()})")
        count(len(part))
        body += part
        has_more = message.get("more_body", False)
    return body


def check_json(content_type: bytes) -> None:
    """Check the header Content-Type, empty if there is none."""
    kind = content_type.partition(b";")[0].strip().lower()
    if kind != b"application/json" and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
        raise Invalid("the body is not declared as JSON: send the header Content-Type: application/json")


def read_json(body: bytes | bytearray, model: type[BaseModel], place: Sequence[int] = ()) -> BaseModel:
    """Parse a body, and validate it with its model."""
    # If it is a piece of a larger one, `place` is where its first items are there.
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        count = error.error_count()
        if count > _MAX_DESCRIBED_FAULTS:
            schema = ENDPOINTS["openapi"].path
            raise Invalid(f"the body has {count} errors, too many to list; see {schema} for its schema") from error
        faults = error.errors(include_url=False)
        if faults[0]["type"] == "json_invalid":
            detail = str(faults[0].get("ctx", {}).get("error"))
            raise BadJson(f"the body is not JSON: {detail.partition(' at line')[0] if place else detail}") from error
        refusal = TooLarge if faults[0]["type"] == TooLarge.code else Invalid
        raise refusal(describe_faults(faults, model, place)) from error


def describe_faults(faults: Sequence[Mapping[str, Any]], model: type[BaseModel], place: Sequence[int] = ()) -> str:
    """Name the first invalid fields of a body, given pydantic's errors; no values, which may be the text of a query."""
    sentences = []
    for fault in faults[:_MAX_LISTED_FAULTS]:
        places = iter(place)
        path = [name + next(places, 0) if isinstance(name, int) else name for name in fault["loc"]]
        suggestion = suggest_field(str(path[-1]), model) if fault["type"] == "extra_forbidden" else ""
        sentences.append(f"{_field_path(path)}: {fault['msg']}{suggestion}")
    return "; ".join(sentences)


def _field_path(location: Sequence[object]) -> str:
    """Return a field's path below the body. Names are truncated, because the client may have made them up."""
    names = map(str, location)
    shortened = (name if len(name) <= _MAX_NAME_CHARS else f"{name[:_MAX_NAME_CHARS]}…" for name in names)
    return ".".join(shortened) or "body"


async def read_large_json(body: bytes, model: type[BaseModel], lists: Sequence[str]) -> BaseModel:
    """Do the same as `read_json`, but let other requests run in between.

    `lists` names the list that has most of the body, and the one in each of its items, if there is one.
    """
    (first, place), *others = await asyncio.to_thread(lambda: [*_divide(body, lists)])
    whole = read_json(first, model, place)
    for piece, place in others:
        await asyncio.sleep(0)
        part = read_json(piece, model, place)
        items, more = getattr(whole, lists[0]), getattr(part, lists[0])
        if place[1]:  # more of the last item
            items, more = getattr(items[-1], lists[1]), getattr(more[0], lists[1])
        items.extend(more)
    return whole


def _divide(body: bytes, lists: Sequence[str], path: str = "") -> Iterator[tuple[bytes, Sequence[int]]]:
    """Yield bodies with some of the items of a body each, and the place of the first of these."""
    at, steps, depth = _structure(body)
    if len(at) <= _PIECE_VALUES:
        yield body, (0, 0)
        return
    first = int(np.argmax((depth == 2) & (steps == 1)))
    if depth[-1] != 0 or depth[first] != 2:
        raise BadJson(f"the body is not JSON, or has no list {path}{lists[0]}")
    last = first + int(np.argmax(depth[first:] < 2))
    if len(at) - (last - first) > _PIECE_VALUES:
        raise Invalid(f"{path}{lists[0]}: has little of the body; leave other fields out")
    cuts = np.append(first + np.flatnonzero((depth[first:last] == 2) & (steps[first:last] >= 0)), last)
    head, tail, start = body[: at[first] + 1], body[at[last] :], 0
    while start < len(cuts) - 1:
        stop = max(start + 1, int(np.searchsorted(cuts, cuts[start] + _PIECE_VALUES, "right")) - 1)
        items = body[at[cuts[start]] + 1 : at[cuts[stop]]]
        values, name = cuts[stop] - cuts[start], f"{path}{lists[0]}.{start}"
        if values > _PIECE_VALUES and len(lists) > 1:
            for piece, place in _divide(items, lists[1:], f"{name}."):
                yield head + piece + tail, (start, *place)
        elif values > (_MAX_VALUES if lists[0] == "queries" else _PIECE_VALUES):
            raise Invalid(f"{name}: has {values:,} values; leave out what is not needed")
        elif not items.strip():
            raise BadJson(f"the body is not JSON: {name} is missing")
        else:
            yield head + items + tail, (start, 0)
        start = stop


def _structure(body: bytes) -> tuple[NDArray[np.intp], NDArray[np.int8], NDArray[np.int32]]:
    """Return the place of each bracket and comma outside of strings, its step of nesting, and the depth after it."""
    codes = np.frombuffer(body.replace(rb"\\", b"__").replace(rb"\"", b"__"), dtype=np.uint8)
    quoted = np.bitwise_xor.accumulate((codes == ord('"')).view(np.uint8)).view(np.bool_)
    steps = np.where(quoted, np.int8(_OTHER), _STEPS[codes])
    at = np.flatnonzero(steps != _OTHER)
    return at, steps[at], np.cumsum(steps[at], dtype=np.int32)
