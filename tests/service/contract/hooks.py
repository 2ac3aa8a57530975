"""What schemathesis is told of this service: what its errors look like, and which refusals no schema can foretell.

Loaded by schemathesis itself, through SCHEMATHESIS_HOOKS.
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import schemathesis
from schemathesis import Case, CheckContext, HookContext, Response
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.openapi.checks import RejectedPositiveData

_API = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
# Rows of the table of errors: | 429 | `overloaded` | … |, or several codes of one status.
_ROWS = re.findall(r"^\| (\d{3}) \| ([^|]+) \|", _API, re.MULTILINE)
CODES: dict[int, set[str]] = {}
for _status, _codes in _ROWS:
    CODES.setdefault(int(_status), set()).update(re.findall(r"`([a-z_]+)`", _codes))

# What a request may ask depends on the release in service, on the replies of the last hour, and on its own other
# fields; JSON Schema has no words for these. Anything else that the schema allows has to be answered.
_NOT_IN_A_SCHEMA = (
    re.compile(r"filter: no document has the field "),
    re.compile(r"min_results: \d+ is over k, which is \d+"),
    re.compile(r"document_id: (the reply did|a search for this query does) not show it"),
    re.compile(r"filter: has \d+ (values, at most 256|conditions, at most 16)"),  # in all filters together
    re.compile(r"(queries\.\d+\.)?query: Field required$"),  # unless there is a vector
    re.compile(r"(queries\.\d+\.)?vector: the release encodes queries itself"),
    re.compile(r"query: a query needs text$"),  # of nothing but characters that nobody sees
    re.compile(r"filter: .{0,41} holds .+, but the filter compares it with ", re.DOTALL),
    re.compile(r"filter: .{0,41}: (bounds mix numbers and dates|[gl]te? needs a finite number, or an ISO date)"),
    re.compile(r"filters: .{0,40}: (eq|ne|n?in|[gl]te?) needs ", re.DOTALL),
    re.compile(r"knowledge_id: there is no such knowledge base; "),
    re.compile(
        r"metadata_condition: .{0,40}: .+ (cannot be translated; use |is none of Dify's; use |needs )", re.DOTALL
    ),
)


KNOWN_FIELD = "category"  # of the sample's documents
CURRENT = "current"  # as dialects call the release in service
_NESTED = 2  # filters within a filter


@schemathesis.hook
def before_load_schema(context: HookContext, raw_schema: dict[str, Any]) -> None:
    """Let a filter hold filters that hold filters, and those none.

    A filter holds several filters, each of which may hold several. Most that a generator draws never end, so that it
    throws them away and draws again: ten times as long for the same requests. Deeper ones are tested by themselves
    (tests/retrieval/documents).
    """
    unroll(raw_schema.get("components", {}).get("schemas", {}), _NESTED)


def unroll(schemas: dict[str, Any], depth: int) -> None:
    """Replace schemas that refer to themselves by `depth` copies of each, of which the last one does not any more."""
    for name, schema in list(schemas.items()):
        reference = f"#/components/schemas/{name}"
        if not _refers(schema, reference):
            continue
        beside = _beside(schema, reference)
        written = orjson.dumps(schema).decode()
        levels = [name, *(f"{name}{level}" for level in range(1, depth + 1))]
        for level, inner in pairwise(levels):
            schemas[level] = orjson.loads(written.replace(f'"{reference}"', f'"#/components/schemas/{inner}"'))
        schemas[levels[-1]] = _without(schema, reference)
        for inner in levels[1:]:
            schemas[inner] |= beside


def _beside(schema: object, reference: str) -> dict[str, Any]:
    """Return what stands beside the references: generators overlook that an inner filter needs a condition."""
    found: dict[str, Any] = {}
    if isinstance(schema, dict) and schema.get("$ref") == reference:
        found = {key: value for key, value in schema.items() if key not in {"$ref", "title"}}
    values = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for each in values:
        found |= _beside(each, reference)
    return found


def _refers(schema: object, reference: str) -> bool:
    return f'"{reference}"'.encode() in orjson.dumps(schema)


def _without(schema: Any, reference: str) -> Any:
    """Leave out the alternatives that refer to a schema, then the fields that still do."""
    if isinstance(schema, list):
        return [_without(each, reference) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if key in {"anyOf", "oneOf"}:
            kept[key] = [_without(each, reference) for each in value if not _refers(each, reference)]
        elif key == "properties":
            fields = {name: _without(each, reference) for name, each in value.items()}
            kept[key] = {name: each for name, each in fields.items() if not _refers(each, reference)}
        else:
            kept[key] = _without(value, reference)
    return kept


@schemathesis.hook
def map_body(context: HookContext, body: object) -> object:
    """Let a filter of one field ask for one that there is: no generator guesses its name."""
    for search in body["queries"] if _has_list(body, "queries") else [body]:
        if isinstance(search, dict) and isinstance(search.get("filter"), dict) and len(search["filter"]) == 1:
            ((name, query_filter),) = search["filter"].items()
            search["filter"] = {name if name in {"$or", "$not"} else KNOWN_FIELD: query_filter}
    if isinstance(body, dict) and _names_a_release(body.get("knowledge_id")):
        body["knowledge_id"] = CURRENT
    return body


@schemathesis.hook
def map_path_parameters(context: HookContext, path_parameters: dict[str, object] | None) -> dict[str, object] | None:
    """Let half of the vector stores be there."""
    if path_parameters and _names_a_release(path_parameters.get("vector_store_id")):
        path_parameters["vector_store_id"] = CURRENT
    return path_parameters


def _names_a_release(name: object) -> bool:
    return isinstance(name, str) and len(name) % 2 == 0


def _has_list(body: object, name: str) -> bool:
    return isinstance(body, dict) and isinstance(body.get(name), list)


@schemathesis.check
def documented_error(context: CheckContext, response: Response, case: Case) -> None:
    """Every error has the one shape, a code that docs/api.md has for its status, and the id of its header."""
    if response.status_code < 400:
        return
    if case.method == "HEAD":  # has no body
        return
    try:
        error = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        raise AssertionError("an error in another shape") from None
    if error["code"] not in CODES.get(response.status_code, ()):
        raise AssertionError(f"{response.status_code} with the code {error['code']!r}, which docs/api.md has not")
    if [error["request_id"]] != response.headers["x-request-id"]:
        raise AssertionError("the request id of the body is not that of the header")
    if len(error["message"]) > 1000:
        raise AssertionError("a message that repeats what the client sent")


@schemathesis.hook
def filter_failure(context: HookContext, failure: Failure, case: Case, response: Response) -> bool:
    """Whether a failure is one: not where a schema cannot say what is asked of a request, nor what it is told."""
    if isinstance(failure, AcceptedNegativeData) and response.status_code == 413:
        return False  # a refusal, which schemathesis does not expect of a list that is too long
    if not isinstance(failure, RejectedPositiveData) or response.status_code != 422:
        return True
    message = re.sub(r"^queries\.\d+\.", "", response.json()["error"]["message"])
    return not any(reason.match(message) for reason in _NOT_IN_A_SCHEMA)
