"""Request bodies: they are read within limits, and parsed as JSON.

Pydantic validates JSON while parsing it. FastAPI's own handler would resolve dependencies for every request, and parse
a body before validating it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.types import Receive

from taugate.service.errors import BadJson, ClientGone, Invalid, TooLarge
from taugate.service.http.endpoints import ENDPOINTS, BodyLimit
from taugate.service.http.suggestions import suggest_field
from taugate.service.settings.groups import RequestSettings

# Describing an error takes a microsecond and some 300 bytes, and a crafted body of 1 MiB has a hundred thousand.
_MAX_DESCRIBED_FAULTS = 10
_MAX_LISTED_FAULTS = 3  # enough to correct a body, while the message remains shorter than the body
_MAX_NAME_CHARS = 40


async def read_body(
    receive: Receive, limits: RequestSettings, limit: BodyLimit, declared: bytes, count: Callable[[int], None]
) -> bytearray:
    """Return the body of a request.

    Bytes are counted as they arrive, whatever Content-Length says, so a body over a limit is refused before it is read,
    or before it is in memory. (Starlette's `max_body_size` replies in plain text, and limits single bodies only.)

    Args:
        receive: ASGI's `receive` of the request.
        limits: The limits on requests.
        limit: Name of the one that limits the body.
        declared: Value of the header Content-Length, empty if there is none.
        count: Called with the number of bytes of each part; raises Overloaded if too much is in memory.

    Raises:
        TooLarge: If the body is too large.
        ClientGone: If the connection closes before the whole body was received.
    """
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
    """Check the header Content-Type, empty if there is none.

    Raises:
        Invalid: If it does not declare the body as JSON.
    """
    kind = content_type.partition(b";")[0].strip().lower()
    if kind != b"application/json" and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
        raise Invalid("the body is not declared as JSON: send the header Content-Type: application/json")


def read_json(body: bytes | bytearray, model: type[BaseModel], place: Sequence[int] = ()) -> BaseModel:
    """Parse a body, and validate it with its model.

    If it is a piece of a larger one, `place` is where its first items are there.

    Raises:
        BadJson: If the body is not JSON.
        Invalid: If it does not fit the model.
        TooLarge: If a list in it is too long.
    """
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
