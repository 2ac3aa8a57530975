"""Request bodies: limits on the bytes in memory, and the parsing of JSON.

Pydantic validates JSON while parsing it. FastAPI's own handler would resolve dependencies for every request, and parse
a body before validating it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from taugate.service.errors import BadJson, ClientGone, Invalid, Overloaded, TooLarge
from taugate.service.http.endpoints import ENDPOINTS, BodyLimit
from taugate.service.settings import Settings

# Number of bodies of the largest size that may be in memory at once, 64 MiB by default. A usual body has a hundred
# bytes; the limit is for thousands of clients that each send most of a large one.
_MAX_LARGE_BODIES = 64
# The same per key, so that it takes eight keys to exhaust the limit for all.
_MAX_LARGE_BODIES_PER_KEY = 8
# The queue limit divided by this is the number of batches per key in progress, 8 by default: twice as many full ones as
# fit into the queue. A fully cached batch does not use the queue; it takes 1 ms of the event loop, or 18 ms if each
# reply has a hundred documents.
_QUERIES_PER_BATCH = 32
# Describing an error takes a microsecond and some 300 bytes, and a crafted body of 1 MiB has a hundred thousand.
_MAX_DESCRIBED_FAULTS = 10
_MAX_LISTED_FAULTS = 3  # enough to correct a body, while the message remains shorter than the body
_MAX_NAME_CHARS = 40


class BodyLimits:
    """Limits the bytes of request bodies in memory, and the batches in progress; belongs to one event loop.

    Bytes are counted as they arrive, whatever Content-Length says, so a body over a limit is refused before it is read,
    or before it is in memory. (Starlette's `max_body_size` replies in plain text, and limits single bodies only.)
    """

    def __init__(self, settings: Settings) -> None:
        self._max_bytes: dict[BodyLimit, int] = {
            "max_body_bytes": settings.requests.max_body_bytes,
            "max_batch_bytes": settings.requests.max_batch_bytes,
        }
        largest = max(self._max_bytes.values())
        self._max_total, self._max_total_per_key = _MAX_LARGE_BODIES * largest, _MAX_LARGE_BODIES_PER_KEY * largest
        self._total = 0  # bytes of all bodies in memory
        self._total_per_key: Counter[str | None] = Counter()
        self._max_batches = max(1, settings.admission.queue_limit // _QUERIES_PER_BATCH)
        self._batches: Counter[str | None] = Counter()  # in progress, by key name; None for requests without a key

    @contextmanager
    def receiving(
        self, receive: Receive, limit: BodyLimit, name: str | None, declared: bytes = b""
    ) -> Iterator[Receive]:
        """Count a body as in memory inside the context.

        Yields a `receive` that raises TooLarge if the body is too large, and Overloaded if too much is in memory.

        Args:
            receive: ASGI's `receive` of the request.
            limit: The setting that limits the body.
            name: Name of the request's key, None if it needed none.
            declared: Value of the header Content-Length, empty if there is none.

        Raises:
            Overloaded: If too many batches of the key are in progress.
        """
        is_batch, max_bytes = limit == "max_batch_bytes", self._max_bytes[limit]
        if is_batch and self._batches[name] >= self._max_batches:
            raise Overloaded(f"this key has {self._max_batches} batches in progress; try again later")
        is_too_large = declared.isdigit() and int(declared) > max_bytes
        received = 0

        async def receive_within_limits() -> Message:
            nonlocal received
            message = await receive()
            size = len(message.get("body", b""))
            if is_too_large or received + size > max_bytes:
                raise TooLarge(f"the body is over {max_bytes} bytes (TAUGATE_{limit.upper()})")
            received += size
            self._count(name, size)
            return message

        self._batches[name] += is_batch
        try:
            yield receive_within_limits
        finally:
            self._batches[name] -= is_batch
            self._count(name, -received)

    def _count(self, name: str | None, size: int) -> None:
        """Count bytes that were received (positive) or freed (negative)."""
        self._total += size
        self._total_per_key[name] += size
        if size > 0 and self._total > self._max_total:
            raise Overloaded("too many large bodies are being received; try again later")
        if size > 0 and name is not None and self._total_per_key[name] > self._max_total_per_key:
            raise Overloaded(f"too many large bodies of the key {name} are being received; try again later")


async def read_json(request: Request, content_type: bytes, model: type[BaseModel]) -> BaseModel:
    """Read the body of a request, and validate it with its model; `content_type` is empty if there is no such header.

    Raises:
        BadJson: If the body is not JSON.
        Invalid: If it is not declared as JSON, or does not fit the model.
        TooLarge: If a list in it is too long.
        ClientGone: If the connection closes before the whole body was received.
    """
    kind = content_type.partition(b";")[0].strip().lower()
    if kind != b"application/json" and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
        raise Invalid("the body is not declared as JSON: send the header Content-Type: application/json")
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        count = error.error_count()
        if count > _MAX_DESCRIBED_FAULTS:
            schema = ENDPOINTS["openapi"].path
            raise Invalid(f"the body has {count} errors, too many to list; see {schema} for its schema") from error
        faults = error.errors(include_url=False)
        if faults[0]["type"] == "json_invalid":
            raise BadJson(f"the body is not JSON: {faults[0].get('ctx', {}).get('error')}") from error
        raise (TooLarge if faults[0]["type"] == TooLarge.code else Invalid)(describe_faults(faults)) from error
    except ClientDisconnect as error:
        raise ClientGone("the connection was closed before the whole body was received") from error


def describe_faults(faults: Sequence[Mapping[str, Any]]) -> str:
    """Name the first invalid fields of a body, given pydantic's errors; no values, which may be the text of a query."""
    return "; ".join(f"{_field_path(fault['loc'])}: {fault['msg']}" for fault in faults[:_MAX_LISTED_FAULTS])


def _field_path(location: Sequence[object]) -> str:
    """Return a field's path below the body. Names are truncated, because the client may have made them up."""
    names = map(str, location)
    shortened = (name if len(name) <= _MAX_NAME_CHARS else f"{name[:_MAX_NAME_CHARS]}…" for name in names)
    return ".".join(shortened) or "body"
