"""Translation of the frameworks' filters to Taugate's, and errors for those that cannot be expressed."""

import itertools
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import pytest
from haystack import Document
from haystack.utils.filters import document_matches_filter
from langchain_core.structured_query import Comparator, Comparison, Operation, Operator
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from haystack_integrations.components.retrievers.taugate.retriever import translate as from_haystack
from langchain_taugate.retriever import translate as from_langchain
from llama_index.retrievers.taugate.retriever import translate as from_llamaindex
from taugate.retrieval.documents.filter_schema import read_filter
from taugate_client import Filter, UnsupportedFilter
from taugate_client.filters import all_of, any_of, compare, negate


def holds(filter: Filter, metadata: Mapping[str, object]) -> bool:
    """Say whether a document meets a filter, by the rules of docs/api.md and of the operators that are to come."""

    def meets(name: str, condition: Any) -> bool:
        if name == "$or":
            return any(holds(each, metadata) for each in condition)
        if name == "$not":
            return not holds(condition, metadata)
        if not isinstance(condition, dict):
            return metadata.get(name) in (condition if isinstance(condition, list) else [condition])
        tests = {
            "gt": lambda value, bound: value > bound, "gte": lambda value, bound: value >= bound,
            "lt": lambda value, bound: value < bound, "lte": lambda value, bound: value <= bound,
            "ne": lambda value, other: value != other, "nin": lambda value, others: value not in others,
        }  # fmt: skip
        return name in metadata and all(tests[key](metadata[name], bound) for key, bound in condition.items())

    return all(meets(name, condition) for name, condition in filter.items())


DOCUMENTS = [{"year": year, "kind": kind} for year in (2018, 2020, 2024) for kind in ("a", "b", "c")]
LEAVES = [
    ("year", ">", 2018), ("year", "<=", 2020), ("year", ">=", 2020), ("year", "!=", 2020), ("kind", "==", "a"),
    ("kind", "in", ["a", "b"]), ("kind", "not in", ["b"]),
]  # fmt: skip


def test_joined_filters_match_all_or_any() -> None:
    for size in (1, 2, 3):
        for leaves in itertools.combinations(LEAVES, size):
            filters = [compare(*leaf) for leaf in leaves]
            for document in DOCUMENTS:
                met = [holds(each, document) for each in filters]
                assert holds(all_of(filters), document) == all(met), filters
                assert holds(any_of(filters), document) == any(met), filters
                assert holds(negate(all_of(filters)), document) != all(met), filters


def test_joining_leaves_inputs_unchanged() -> None:
    filters = [compare("year", ">", 2018), compare("year", "<", 2024)]
    before = json.dumps(filters)
    assert all_of(filters) == {"year": {"gt": 2018, "lt": 2024}}
    assert json.dumps(filters) == before


@pytest.mark.parametrize("leaves", list(itertools.combinations(LEAVES, 2)), ids=str)
@pytest.mark.parametrize("operator", ["AND", "OR", "NOT"])
def test_haystack_filters_match_same_documents(leaves: tuple[tuple[str, str, object], ...], operator: str) -> None:
    conditions = [{"field": f"meta.{name}", "operator": sign, "value": value} for name, sign, value in leaves]
    asked = {"operator": operator, "conditions": conditions}
    for document in DOCUMENTS:
        expected = document_matches_filter(asked, Document(content="", meta=document))
        assert holds(from_haystack(asked), document) == expected


def test_langchain_filters_are_translated() -> None:
    def leaf(comparator: Comparator, value: object, name: str = "year") -> Comparison:
        return Comparison(comparator=comparator, attribute=name, value=value)

    both = Operation(operator=Operator.AND, arguments=[leaf(Comparator.GTE, 2019), leaf(Comparator.LT, 2024)])
    assert from_langchain(both) == {"year": {"gte": 2019, "lt": 2024}}
    either = Operation(operator=Operator.OR, arguments=[both, leaf(Comparator.IN, ["a"], "kind")])
    assert from_langchain(either) == {"$or": [{"year": {"gte": 2019, "lt": 2024}}, {"kind": ["a"]}]}
    neither = Operation(operator=Operator.NOT, arguments=[leaf(Comparator.EQ, "a", "kind")])
    assert from_langchain(neither) == {"$not": {"kind": "a"}}
    assert from_langchain(leaf(Comparator.CONTAIN, "pump", "tags")) == {"tags": "pump"}
    assert from_langchain(leaf(Comparator.NE, 1)) == {"year": {"ne": 1}}
    assert from_langchain(leaf(Comparator.NIN, [1])) == {"year": {"nin": [1]}}
    with pytest.raises(UnsupportedFilter, match="'like'"):
        from_langchain(leaf(Comparator.LIKE, "%a%"))


def test_llamaindex_filters_are_translated() -> None:
    def leaf(operator: FilterOperator, value: object, key: str = "year") -> MetadataFilter:
        return MetadataFilter(key=key, operator=operator, value=value)

    def joined(condition: FilterCondition | None, *filters: MetadataFilter | MetadataFilters) -> MetadataFilters:
        return MetadataFilters(filters=list(filters), condition=condition)

    bounds = joined(FilterCondition.AND, leaf(FilterOperator.GT, 1), leaf(FilterOperator.LTE, 2))
    assert from_llamaindex(bounds) == {"year": {"gt": 1, "lte": 2}}
    assert from_llamaindex(joined(None, leaf(FilterOperator.EQ, 1))) == {"year": 1}
    tagged = leaf(FilterOperator.CONTAINS, "pump", "tags")
    assert from_llamaindex(joined(FilterCondition.OR, bounds, tagged)) == {
        "$or": [{"year": {"gt": 1, "lte": 2}}, {"tags": "pump"}]
    }
    assert from_llamaindex(joined(FilterCondition.NOT, tagged)) == {"$not": {"tags": "pump"}}
    assert from_llamaindex(leaf(FilterOperator.ANY, ["a", "b"], "tags")) == {"tags": ["a", "b"]}
    every = from_llamaindex(leaf(FilterOperator.ALL, ["a", "b"], "tags"))
    assert every == {"$not": {"$or": [{"$not": {"tags": "a"}}, {"$not": {"tags": "b"}}]}}
    assert from_llamaindex(leaf(FilterOperator.NIN, ["a"], "tags")) == {"tags": {"nin": ["a"]}}
    for refused in (FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE):
        with pytest.raises(UnsupportedFilter, match=refused.value):
            from_llamaindex(leaf(refused, "x"))
    with pytest.raises(UnsupportedFilter, match="is_empty"):
        from_llamaindex(MetadataFilter(key="tags", operator=FilterOperator.IS_EMPTY, value=None))


@pytest.mark.parametrize(
    ("leaf", "said"),
    [
        (("year", ">", "soon"), "needs a number, or an ISO date"),
        (("year", "<", True), "needs a number"),
        (("kind", "==", None), "null"),
        (("kind", "==", ["a"]), "list"),
        (("kind", "in", []), "not empty"),
        (("kind", "in", "ab"), "list"),
        (("kind", "in", [["a"]]), "list"),
        (("year", "==", float("nan")), "float"),
        (("$or", "==", "a"), "begins with"),
        (("kind", "~", "a"), "'~'"),
    ],
)
def test_unsupported_condition_names_field(leaf: tuple[str, str, object], said: str) -> None:
    with pytest.raises(UnsupportedFilter, match=said) as refused:
        compare(*leaf)
    assert leaf[0] in str(refused.value)
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize(
    "filters", [{}, {"operator": "XOR", "conditions": [{}]}, {"operator": "AND"}, {"conditions": 1}]
)
def test_malformed_haystack_filter_is_refused(filters: dict[str, object]) -> None:
    with pytest.raises(UnsupportedFilter, match="expected"):
        from_haystack(filters)


@pytest.mark.parametrize("leaf", [leaf for leaf in LEAVES if leaf[1] not in ("!=", "not in")], ids=str)
def test_service_parses_translated_filters(leaf: tuple[str, str, object]) -> None:
    assert read_filter(all_of([compare(*leaf), compare("other", "==", True)])) is not None


DATES: list[tuple[object, str]] = [
    ("2019-01-01", "2019-01-01"),
    ("2019-01-01T10:30:00+02:00", "2019-01-01T10:30:00+02:00"),
    (date(2019, 1, 1), "2019-01-01"),
    (datetime(2019, 1, 1, 10, 30, tzinfo=UTC), "2019-01-01T10:30:00+00:00"),
    ({"date": "2019-01-01", "type": "date"}, "2019-01-01"),
    ({"datetime": "2019-01-01T10:30:00Z", "type": "datetime"}, "2019-01-01T10:30:00Z"),
]


@pytest.mark.parametrize(("value", "written"), DATES, ids=str)
def test_date_bound_becomes_iso_text(value: object, written: str) -> None:
    assert compare("created", ">=", value) == {"created": {"gte": written}}
    assert read_filter(compare("created", "<", value)) is not None
    assert from_langchain(Comparison(comparator=Comparator.GT, attribute="created", value=value)) == {
        "created": {"gt": written}
    }
