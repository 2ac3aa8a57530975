"""JSON replies without a second validation: what is sent was built here from our own values."""

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response


def json_reply(value: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON object as the whole reply."""
    return json_bytes(orjson.dumps(value), status, headers)


def json_bytes(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON text as the whole reply."""
    return Response(body, status, headers=dict(headers or {}), media_type="application/json")
