"""Any documents round-trip, and any filter selects the same documents as plain Python."""

import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from taugate.errors import InputError
from taugate.retrieval.documents.filter_schema import MAX_CONDITIONS, read_filter
from taugate.retrieval.documents.filters import AnyOf, Filter, Not, OneOf, Range, all_of, filter_json, on_fields
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import Document, DocumentStore, DocumentWriter
from taugate.service.api.schemas import SearchRequest

TEXTS = st.text(max_size=6) | st.sampled_from(["", "a", "A", "å", "1", "true", "\x00", '"', "\\", "\U0001f3d7"])
WHOLE = st.integers(-(2**63), 2**64 - 1) | st.sampled_from([0, 1, -1, 2**53, 2**53 + 1, 2**63, 2**64 - 1])
FINITE = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0, 2.0**53, 5e-324, 1e308])
VALUES = st.one_of(st.booleans(), WHOLE, FINITE, TEXTS)
FIELDS = st.sampled_from(["a", "b", "å"]) | TEXTS
TAGS = st.lists(TEXTS, max_size=4)
RECORDS = st.dictionaries(FIELDS, VALUES | TAGS | st.none(), max_size=4)
CORPORA = st.lists(RECORDS, min_size=1, max_size=12)
# What a filter may hold and a corpus may not: an integer of any length, which there is read as a float.
ASKED = VALUES | st.integers() | st.sampled_from([2**64, -(2**64), 10**30, 10**400, -(10**400)])
BOUNDS = st.dictionaries(
    st.sampled_from(["gt", "gte", "lt", "lte"]), ASKED.filter(lambda v: not isinstance(v, bool | str)), min_size=1
)
LISTS = st.lists(ASKED, min_size=1, max_size=4)
NEGATIONS = st.fixed_dictionaries({"ne": ASKED}, optional={"nin": LISTS}) | st.fixed_dictionaries({"nin": LISTS})
CONDITIONS = st.one_of(ASKED, LISTS, BOUNDS, NEGATIONS, st.builds(dict.__or__, BOUNDS, NEGATIONS))
ANY_JSON = st.recursive(ASKED | st.none(), lambda each: st.lists(each) | st.dictionaries(TEXTS, each), max_leaves=6)

# Filters that JSON cannot say word for word, as it names a field once: of one field, and of few values that collide.
FEW_VALUES = st.sampled_from([0, 1, 2.5, "", "a", False, True])
ONE_OF = st.builds(lambda values: OneOf.of("a", *values), st.lists(FEW_VALUES, min_size=1, max_size=3))
NUMBERS = st.sampled_from([0, 1, 2.5])
RANGES = st.builds(lambda low: Range("a", gte=low), NUMBERS) | st.builds(lambda high: Range("a", lt=high), NUMBERS)
FILTERS: st.SearchStrategy[Filter] = st.recursive(
    st.lists(ONE_OF | RANGES, min_size=1, max_size=3).map(lambda each: all_of(*each)),
    lambda inner: st.builds(
        lambda one, others: all_of(*one, *others),
        inner,
        inner.map(lambda each: (Not(each),)) | st.lists(inner, min_size=1, max_size=3).map(AnyOf.of),
    ),
    max_leaves=5,
)


def values_of(records: list[dict[str, Any]]) -> list[Any]:
    """All values that filters can ask for."""
    return [value for record in records for value in record.values() if value not in (None, [])]


def documents(records: list[dict[str, Any]]) -> list[Document]:
    return [Document(f"d{place}", "text", None, record) for place, record in enumerate(records)]


def as_corpora_have_it(asked: Any) -> Any:
    """An integer beyond 64 bits is a float there, and infinity no value at all."""
    if isinstance(asked, bool | str | float) or -(2**63) <= asked < 2**64:
        return asked
    return float(asked) if abs(asked) < 2**1000 else asked


def meets(value: Any, condition: Any) -> bool:
    """docs/api.md, word for word."""
    if isinstance(condition, dict) and {*condition} & {"ne", "nin"}:
        bounds = {name: each for name, each in condition.items() if name not in {"ne", "nin"}}
        negated = [condition[name] for name in ("ne", "nin") if name in condition]
        return not any(meets(value, item) for item in negated) and (not bounds or meets(value, bounds))
    if value is None:
        return False
    if isinstance(value, list):
        return any(meets(tag, condition) for tag in value)
    if isinstance(condition, dict):
        if isinstance(value, bool | str):
            return False
        bounds = {name: as_corpora_have_it(bound) for name, bound in condition.items()}
        return all(
            (
                value > bounds.get("gt", -math.inf) or "gt" not in bounds,
                value >= bounds.get("gte", -math.inf),
                value < bounds.get("lt", math.inf) or "lt" not in bounds,
                value <= bounds.get("lte", math.inf),
            )
        )
    query_filter = [as_corpora_have_it(item) for item in (condition if isinstance(condition, list) else [condition])]
    return any(value == item and _kind(value) == _kind(item) for item in query_filter)


def holds(record: dict[str, Any], query_filter: dict[str, Any]) -> bool:
    return all(
        any(holds(record, item) for item in asked)
        if name == "$or"
        else not holds(record, asked)
        if name == "$not"
        else meets(record.get(name), asked)
        for name, asked in query_filter.items()
    )


def fields_of(query_filter: dict[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, asked in query_filter.items():
        inside = asked if name == "$or" else [asked] if name == "$not" else None
        found += [(name, asked)] if inside is None else [item for part in inside for item in fields_of(part)]
    return found


def _kind(value: Any) -> str:
    return "boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"


def _request(query_filter: Any) -> SearchRequest:
    return SearchRequest.model_validate_json(json.dumps({"query": "q", "filter": query_filter}))


@given(CORPORA, st.data())
def test_filter_agrees_with_plain_python(records: list[dict[str, Any]], data: st.DataObject) -> None:
    metadata = Metadata.of(documents(records))
    if not metadata.columns:
        return
    held = [tag for value in values_of(records) for tag in (value if isinstance(value, list) else [value])]
    conditions = CONDITIONS | st.sampled_from(held) | st.lists(st.sampled_from(held), min_size=1, max_size=4)
    plain = st.dictionaries(st.sampled_from([*metadata.columns]), conditions, min_size=1, max_size=2)
    combined = st.recursive(
        plain,
        lambda each: st.builds(
            lambda fields, others: fields | others,
            plain | st.just({}),
            st.fixed_dictionaries({"$or": st.lists(each, min_size=1, max_size=2)}, optional={"$not": each})
            | st.fixed_dictionaries({"$not": each}),
        ),
        max_leaves=3,
    )
    query_filter = data.draw(combined)
    try:
        conditions = _request(query_filter).filter
    except ValidationError as error:
        assert "conditions, at most 16" in str(error)
        return
    bounds = {"gt", "gte", "lt", "lte"}
    bounded = {name for name, asked in fields_of(query_filter) if isinstance(asked, dict) and bounds & {*asked}}
    if any(isinstance(record.get(name), list) for record in records for name in bounded):
        with pytest.raises(InputError, match="holds lists of strings, which have no order; name a string"):
            metadata.check(conditions)
        return
    expected = [holds(record, query_filter) for record in records]
    assert metadata.where(conditions).tolist() == expected


@given(FILTERS)
@example(all_of(OneOf.of("a", 0), Not((OneOf.of("a", "a"),))))
@example(all_of(Not((Range("a", lt=1),)), Not((OneOf.of("a", 0), Range("a", gte=0)))))
def test_written_filter_selects_same_documents(query_filter: Filter) -> None:
    metadata = Metadata.of(documents([{"a": value} for value in (None, 0, 1, 2.5, 3, "", "a", False, True)]))
    try:
        again = read_filter(orjson.loads(orjson.dumps(filter_json(query_filter))))
    except PydanticCustomError as error:
        assert f"at most {MAX_CONDITIONS}" in error.message()
        assume(False)
    assert again
    assert metadata.where(again).tolist() == metadata.where(query_filter).tolist()


@given(CORPORA)
def test_documents_and_metadata_round_trip(records: list[dict[str, Any]]) -> None:
    written = documents(records)
    with TemporaryDirectory() as folder:
        writer = DocumentWriter(Path(folder))
        for document in written:
            writer.append(document)
        writer.close()
        store = DocumentStore(Path(folder))
        assert [repr(document) for document in store] == [repr(document) for document in written]
        metadata = Metadata.of(store)
        if not metadata.columns:
            return
        metadata.save(Path(folder) / "metadata")
        again = Metadata.load(Path(folder) / "metadata", store)
        for position, record in enumerate(records):
            for name, column in again.columns.items():
                value = record.get(name)
                tags = sorted({*value}) if isinstance(value, list) else [] if value is None else [value]
                found = [each for _, each in column.keys(position)]
                assert found == tags and [*map(_kind, found)] == [*map(_kind, tags)]


@given(st.builds(Document, TEXTS, TEXTS, TEXTS | st.none(), RECORDS))
def test_any_document_round_trips(document: Document) -> None:
    with TemporaryDirectory() as folder:
        writer = DocumentWriter(Path(folder))
        writer.append(document)
        writer.close()
        assert repr(DocumentStore(Path(folder))[0]) == repr(document)


@given(ANY_JSON)
def test_any_json_is_filter_or_refused(query_filter: Any) -> None:
    try:
        conditions = _request(query_filter).filter
    except ValidationError as error:
        (detail,) = error.errors()
        assert detail["loc"][0] == "filter" and len(detail["msg"]) < 300
        return
    assert query_filter is None or isinstance(query_filter, dict)
    assert {condition.field for condition in on_fields(conditions or ())} == {
        name for name, _ in fields_of(query_filter or {})
    }
    if conditions:
        with pytest.raises(InputError):
            Metadata().check(conditions)


@given(ANY_JSON)
def test_equal_filters_are_equal(query_filter: Any) -> None:
    """So that searches can share an answer: in another order, and after a trip through another JSON writer."""
    try:
        conditions = _request(query_filter).filter
    except ValidationError:
        return
    if isinstance(query_filter, dict):
        backwards = {name: query_filter[name] for name in reversed([*query_filter])}
        assert (hash(_request(backwards).filter), _request(backwards).filter) == (hash(conditions), conditions)
    try:
        written = orjson.dumps({"query": "q", "filter": query_filter})
    except orjson.JSONEncodeError:  # an integer of more than 64 bits
        return
    assert SearchRequest.model_validate_json(written).filter == conditions
