"""A search request with placeholders, and the places of results in its reply.

A request is JSON, such as

    {"path": "/docs/_search", "body": {"query": {"match": {"text": "$query"}}, "size": "$depth"},
     "results": "hits.hits", "id": "_id", "score": "_score", "text": "_source.text"}

`$query`, `$vector`, `$depth` and every other field of a query's line are replaced: a string that is nothing else by the
value, within a longer string by its JSON. `$$` is a dollar sign. `results` is the place of the list in the reply, the
others are places within a result: names and numbers, separated by dots.
"""

import math
import re
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol
from uuid import UUID

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from taugate.errors import InputError
from taugate.storage.files import Json

Fields = Mapping[str, Json]  # values of placeholders
PLACEHOLDER = re.compile(r"\$(\$|[A-Za-z_]\w*)")
_QUOTED = 200  # letters of a reply that an error repeats
_REPR = reprlib.Repr()
_REPR.maxstring = _QUOTED
_REMEDY = "correct the place in the request"
_MAX_FLOAT32 = 3.4028234663852886e38


class ResultList(BaseModel):
    """A request, and the list of results in its reply."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = ""  # path below the URL, or name of the collection, with placeholders
    body: Any = None  # body of the request, with placeholders; None for the reply to the main request, or for GET
    results: str
    id: str  # place of a document's id in a result
    score: str


class StoreRequest(ResultList):
    """A request for the results of a query."""

    text: str | None = None  # place of a document's text in a result; None if texts are not read
    # places of further scores in a result by name, or the place of an object that holds them by name
    scores: dict[str, str] | str = {}
    # lists with further scores by name: the place of another list in the same reply, or a request of its own. Places
    # that it does not name are those of the results
    components: dict[str, ResultList] = {}
    # body of a request for $count documents, whose results have ids and texts; None if there is none
    sample: Any = None

    @model_validator(mode="before")
    @classmethod
    def _complete_components(cls, value: Any) -> Any:  # noqa: ANN401 (JSON)
        if not isinstance(value, dict) or not isinstance(value.get("components"), dict):
            return value
        places = {name: value[name] for name in ("path", "results", "id", "score") if name in value}
        return value | {
            "components": {
                name: places | ({"results": part} if isinstance(part, str) else part)
                for name, part in value["components"].items()
                if isinstance(part, str | dict)
            }
        }

    @classmethod
    def parse(cls, value: Mapping[str, Json], source: str) -> "StoreRequest":
        """Check a request.

        Raises:
            InputError: If a field is missing, unknown or of another type, or every query would get the same results.
        """
        try:
            request = cls.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise InputError(f"{source}: {place}: {first['msg']}; correct the request") from error
        if not {"query", "vector"} & {*request.placeholders()}:
            raise InputError(
                f'{source}: has neither "$query" nor "$vector", so every query would get the same results; write one '
                "of them into the request"
            )
        return request

    def placeholders(self) -> Iterator[str]:
        """Yield the names of all placeholders."""
        for part in (self, *self.components.values()):
            for text in (part.path, orjson.dumps(part.body).decode()):
                yield from (match[1] for match in PLACEHOLDER.finditer(text) if match[1] != "$")


@dataclass(frozen=True, slots=True)
class StoreResult:
    """A result of the store."""

    id: str
    score: float
    scores: dict[str, float] = field(default_factory=dict)
    text: str | None = None  # text of the document; None if it was not read

    def record(self) -> dict[str, Json]:
        """Return the result as it is written into a run."""
        optional: dict[str, Json] = {"scores": self.scores or None, "text": self.text}
        return {"id": self.id, "score": self.score, **{name: value for name, value in optional.items() if value}}


class ExternalStore(Protocol):
    """A search engine of the user, to which nothing is written."""

    def send(self, path: str, body: Any, fields: Fields) -> Any:  # noqa: ANN401 (JSON)
        """Send a search.

        Returns:
            The reply.

        Raises:
            InputError: If the store refuses the request.
            OSError: If it does not reply. EngineUnavailable if an engine does not.
        """
        ...


@dataclass(frozen=True)
class StoreSearch:
    """Searches of a store by a request."""

    request: StoreRequest
    store: ExternalStore

    def search(self, fields: Fields) -> list[StoreResult]:
        """Return the results of a query in the order of the store; of results of one document, the first.

        Raises:
            InputError: If the store refuses, or a place is not in its reply; other errors as in Store.send.
        """
        request = self.request
        reply = self.store.send(request.path, request.body, fields)
        components = {name: self._scores(part, reply, fields) for name, part in request.components.items()}
        results: dict[str, StoreResult] = {}
        for item in listed(reply, request):
            name = _id_at(item, request.id)
            if name in results:
                continue
            scores = self._own_scores(item) | {key: scores.get(name) for key, scores in components.items()}
            numbers = {key: _number(value, key) for key, value in scores.items() if value is not None}
            text = None if request.text is None else at(item, request.text, None)
            text = text if isinstance(text, str) else None
            results[name] = StoreResult(name, _number(at(item, request.score), "score"), numbers, text)
        return [*results.values()]

    def sample(self, count: int) -> dict[str, str]:
        """Return the texts of some documents by id.

        Args:
            count: Maximum number of documents.

        Raises:
            InputError: If the request has no sample or no place of texts, or no document has a text there.
        """
        request = self.request
        if request.sample is None or request.text is None:
            raise InputError(
                'the request has no "sample" or no "text", so no documents can be read to make queries from; add both, '
                "or give a file of queries"
            )
        reply = self.store.send(request.path, request.sample, {"count": count})
        texts = {_id_at(item, request.id): at(item, request.text, "") for item in listed(reply, request)}
        readable = {name: text for name, text in texts.items() if isinstance(text, str) and text.strip()}
        if not readable:
            raise InputError(
                f"no document has a text at {request.text}; name its field by text-field, a key of --settings"
            )
        return readable

    def _own_scores(self, item: Any) -> dict[str, Json]:  # noqa: ANN401 (JSON)
        """Return the further scores that a result has itself."""
        places = self.request.scores
        if isinstance(places, str):
            scores = at(item, places)
            if not isinstance(scores, dict):
                raise InputError(f"the reply has no scores by name at {places!r}: {beginning_of(scores)}; {_REMEDY}")
            return scores
        return {name: at(item, place) for name, place in places.items()}

    def _scores(self, part: ResultList, reply: Any, fields: Fields) -> dict[str, Json]:  # noqa: ANN401 (JSON)
        """Return the scores of a component by document, of which the first counts."""
        if part.body is not None:
            reply = self.store.send(part.path, part.body, fields)
        scores: dict[str, Json] = {}
        for item in listed(reply, part):
            scores.setdefault(_id_at(item, part.id), at(item, part.score))
        return scores


_REQUIRED = object()


def at(value: Any, place: str, default: Any = _REQUIRED) -> Any:  # noqa: ANN401 (JSON)
    """Return what is at a place.

    Raises:
        InputError: If nothing is there and there is no default.
    """
    part = value
    for name in place.split("."):
        try:
            part = part[int(name) if isinstance(part, list) else name]
        except (KeyError, IndexError, TypeError, ValueError):
            if default is not _REQUIRED:
                return default
            raise InputError(f"the reply has nothing at {place!r}: {beginning_of(value)}; {_REMEDY}") from None
    return part


def listed(reply: Any, part: ResultList) -> list[Any]:  # noqa: ANN401 (JSON)
    """Return the list of results in a reply; raises InputError if there is none."""
    items = at(reply, part.results)
    if not isinstance(items, list):
        raise InputError(f"the reply has no list at {part.results!r}: {beginning_of(items)}; {_REMEDY}")
    return items


def beginning_of(value: Any) -> str:  # noqa: ANN401 (JSON)
    """Return the first letters of a part of a reply, which may be long or nested deeply."""
    return _REPR.repr(value)[:_QUOTED]


def _id_at(item: Any, place: str) -> str:  # noqa: ANN401 (JSON)
    """Return the id of a document, which is text, an integer, or a UUID of PostgreSQL."""
    value = at(item, place)
    if not isinstance(value, str | int | UUID) or isinstance(value, bool) or value == "":
        raise InputError(f"the reply has no id at {place!r}: {beginning_of(value)}; {_REMEDY}")
    return str(value)


def fill(template: Any, fields: Fields) -> Any:  # noqa: ANN401 (JSON)
    """Replace the placeholders in JSON.

    Raises:
        InputError: If a placeholder has no value.
    """
    if isinstance(template, dict):
        return {name: fill(part, fields) for name, part in template.items()}
    if isinstance(template, list):
        return [fill(part, fields) for part in template]
    if not isinstance(template, str):
        return template
    whole = PLACEHOLDER.fullmatch(template)
    if whole and whole[1] != "$":
        return value_of(whole[1], fields)
    return PLACEHOLDER.sub(
        lambda match: "$" if match[1] == "$" else orjson.dumps(value_of(match[1], fields)).decode(), template
    )


def value_of(name: str, fields: Fields) -> Any:  # noqa: ANN401 (JSON)
    """Return the value of a placeholder; raises InputError if it has none."""
    if name not in fields:
        remedy = "give --encoder, or add the field to its line" if name == "vector" else "add the field to its line"
        raise InputError(f"query {fields.get('query_id', '')!r}: the request needs ${name}; {remedy}")
    return fields[name]


def _number(value: Any, name: str) -> float:  # noqa: ANN401 (JSON)
    """Return a score, which some stores send as text."""
    number = finite_number(value)
    if math.isnan(number):
        raise InputError(f"the reply has the {name} {beginning_of(value)}, not a finite number; correct the place")
    return number


def finite_number(value: object) -> float:
    """Return a number, or the number in a text; NaN if it is none or does not fit float32."""
    try:
        number = float(value) if isinstance(value, str | int | float | Decimal) else math.nan
    except (ValueError, OverflowError):
        return math.nan
    return number if abs(number) <= _MAX_FLOAT32 and not isinstance(value, bool) else math.nan
