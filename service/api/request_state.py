"""What the middleware learn about a request and leave in its ASGI state for whatever handles it further in.

| key | type | set by |
|---|---|---|
| headers | dict[bytes, bytes] | `request_headers`, once |
| request_id | str | RequestContext |
| key | ApiKey | Guard, where the request was admitted with a key |
| admitted | bool | Guard: whether it passed a path that is not open to everybody |
| connection | Connection | the server's protocol, where it is ours (service/process/connection.py) |
"""

from typing import cast

from starlette.types import Scope

from taugate.retrieval.documents.filters import Filter
from taugate.service.access.keys import ApiKey


def request_headers(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers by lower-case name, the last of each name; they are put into a dictionary once a request.

    scope: ASGI scope of the request, which gets a state where it has none.
    """
    state = scope.setdefault("state", {})
    if "headers" not in state:
        state["headers"] = dict(scope["headers"])
    return cast("dict[bytes, bytes]", state["headers"])


def request_key(scope: Scope) -> ApiKey | None:
    """Return the API key that a request was admitted with, None where it needed none.

    scope: ASGI scope of the request.
    """
    key: ApiKey | None = scope["state"].get("key")
    return key


def permitted(scope: Scope) -> Filter:
    """Return the filter of the key that a request was admitted with; () permits all documents.

    scope: ASGI scope of the request.
    """
    key = request_key(scope)
    return () if key is None else key.filter
