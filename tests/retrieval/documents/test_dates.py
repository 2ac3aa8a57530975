"""ISO dates in metadata are compared as moments, in any format."""

from typing import Any

import numpy as np
import pytest
from pydantic_core import PydanticCustomError

from taugate.errors import InputError
from taugate.retrieval.documents.filter_schema import read_filter
from taugate.retrieval.documents.filters import filter_json, instant, written
from taugate.retrieval.documents.metadata import FieldTypes, Metadata, holds
from taugate.retrieval.documents.store import Document

DATES = [
    "2011-12-31",
    "2012-01-01",
    "2012-01-01T00:30:00+02:00",  # still 2011 in UTC
    "2012-01-01 15:00",
    "2012-01-02T00:00:00Z",
    "2012-01-01T23:59:59.999999-00:00",
    "not a date",
    "2012-02-30",
    "20120101",
    "2012",
    None,
]
DOCUMENTS = [Document(f"d{place}", "text", None, {"created": date}) for place, date in enumerate(DATES)]
METADATA = Metadata.of(DOCUMENTS)


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ({"gte": "2012-01-01"}, [1, 3, 4, 5]),
        ({"gt": "2012-01-01"}, [4]),
        ({"lt": "2012-01-01"}, [0, 2]),
        ({"lte": "2012-01-01"}, [0, 1, 2, 3, 5]),
        ({"gte": "2012-01-01T15:00:00Z", "lt": "2012-01-02"}, [3, 5]),
        ({"gt": "2012-01-01T15:00Z"}, [4, 5]),
        ({"gte": "2011-12-31T23:30:00+01:00", "lte": "2011-12-31T22:30:00Z"}, [2]),
        ({"gt": "2011-01-01", "gte": "2012-01-02"}, [4]),
        ({"lt": "2012-01-01", "lte": "2030-01-01"}, [0, 2]),
        ({"gt": "2030-01-01"}, []),
        ({"lte": "9999-12-31"}, [0, 1, 2, 3, 4, 5]),
    ],
    ids=str,
)
def test_date_bounds_select_documents(condition: dict[str, Any], found: list[int]) -> None:
    query_filter = read_filter({"created": condition})
    assert query_filter is not None
    METADATA.check_kinds(query_filter)
    assert np.flatnonzero(METADATA.where(query_filter)).tolist() == found
    assert [place for place, each in enumerate(DOCUMENTS) if holds(query_filter, each.metadata)] == found
    again = read_filter(filter_json(query_filter))
    assert again is not None
    assert np.flatnonzero(METADATA.where(again)).tolist() == found


@pytest.mark.parametrize(
    "text", ["2012-1-1", "2012", "2012-02-30", "20120101", "2012-W01-1", "today", "", "2012-01-01T25:00"]
)
def test_bound_without_date_is_refused(text: str) -> None:
    with pytest.raises(PydanticCustomError, match="created: gte needs a finite number, or an ISO date such as"):
        read_filter({"created": {"gte": text}})


def test_mixed_bounds_are_refused() -> None:
    with pytest.raises(PydanticCustomError, match="created: bounds mix numbers and dates"):
        read_filter({"created": {"gte": 5, "lt": "2012-01-01"}})


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ({"created": {"gte": 5}}, "created holds dates, but the filter compares it with numbers"),
        ({"created": 5}, "created holds dates, but the filter compares it with numbers"),
        ({"year": {"lt": "2012-01-01"}}, "year holds numbers, but the filter compares it with dates"),
        ({"name": {"lt": "2012-01-01"}}, "name holds texts, but the filter compares it with dates"),
        ({"days": {"lt": "2012-01-01"}}, "days holds lists of strings, which have no order"),
    ],
    ids=str,
)
def test_check_kinds_refuses_absent_kinds(condition: dict[str, Any], message: str) -> None:
    documents = [Document("d", "t", None, {"created": "2012-01-01", "year": 5, "name": "x", "days": ["2012-01-01"]})]
    query_filter = read_filter(condition)
    assert query_filter is not None
    for types in (FieldTypes.of(documents), Metadata.of(documents).types):
        with pytest.raises(InputError, match=message):
            types.check_kinds(query_filter)


@pytest.mark.parametrize(
    "text", ["1684-05-01", "1969-12-31T23:59:59.5Z", "2012-01-01T10:00:00.123456+05:30", "9999-12-31"]
)
def test_written_moment_is_read_back(text: str) -> None:
    moment = instant(text)
    assert moment is not None
    assert instant(written(moment)) == moment


def test_written_moment_is_capped_at_9999() -> None:
    moment = instant("9999-12-31")
    assert moment is not None
    assert written(moment + 86400) == "9999-12-31T23:59:59.999999+00:00"
