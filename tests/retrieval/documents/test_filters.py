"""Columns of metadata select the same documents as a loop over all documents."""

import json
import math
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from taugate.errors import InputError, ReleaseError
from taugate.retrieval.documents.columns import Column, SortedValues, TagColumn
from taugate.retrieval.documents.filter_schema import read_filter
from taugate.retrieval.documents.filters import Filter, OneOf, Range, all_of
from taugate.retrieval.documents.metadata import Metadata, holds
from taugate.retrieval.documents.store import Document, MetadataValue, Scalar

MIXED: list[Scalar] = [
    True, False, 0, 1, 1.0, 0.0, -0.0, -1, 2, 2.5, 2**53, 2**53 + 1, float(2**53), -(2**63), 2**64 - 1, 1e308, 5e-324,
    "", "1", "True", "true", "a", "A", "å", "a\u030a", "建築", "\U0001f3d7", "a\x00b", '"', "\\", None,
]  # fmt: skip


def corpus(*records: dict[str, Scalar]) -> list[Document]:
    return [Document(f"d{position}", "text", None, record) for position, record in enumerate(records)]


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    """Each mixed value several times, next to a number, a text that every document has of its own, and gaps."""
    rng = np.random.default_rng(0)
    records: list[dict[str, Scalar]] = []
    for row in range(600):
        record: dict[str, Scalar] = {"any": MIXED[rng.integers(len(MIXED))], "id": f"#{row}"}
        if row % 3:
            record["year"] = int(rng.integers(1900, 2030)) if row % 2 else float(rng.normal())
        if row % 7 == 0:
            record["fält"] = bool(row % 2)
        records.append(record)
    return corpus(*records)


@pytest.fixture(scope="module")
def metadata(documents: list[Document]) -> Metadata:
    return Metadata.of(documents)


def meets(document: Document, condition: OneOf | Range) -> bool:
    """The contract's words, for one document."""
    value = document.metadata.get(condition.field)
    if value is None:
        return False
    value = normalize("NFC", value) if isinstance(value, str) else value
    if isinstance(condition, OneOf):
        query_filter = [each for _, each in condition.keys]
        return any(
            value == item
            and isinstance(value, bool) == isinstance(item, bool)
            and isinstance(value, str) == isinstance(item, str)
            for item in query_filter
        )
    if isinstance(value, bool | str):
        return False
    bounds = (
        condition.gt is None or value > condition.gt,
        condition.gte is None or value >= condition.gte,
        condition.lt is None or value < condition.lt,
        condition.lte is None or value <= condition.lte,
    )
    return all(bounds)


def expect(metadata: Metadata, documents: list[Document], query_filter: Filter) -> int:
    expected = [all(meets(document, condition) for condition in query_filter) for document in documents]
    assert metadata.where(query_filter).tolist() == expected
    return sum(expected)


@pytest.mark.parametrize("value", [value for value in MIXED if value is not None] + ["absent", 3, 10**400, -(10**400)])
def test_equality_respects_value_kind(metadata: Metadata, documents: list[Document], value: Any) -> None:
    found = expect(metadata, documents, (OneOf.of("any", value),))
    assert (found > 0) == (value in MIXED)


def test_booleans_numbers_and_texts_differ() -> None:
    metadata = Metadata.of(corpus({"a": True}, {"a": 1}, {"a": "1"}, {"a": 1.0}, {"a": None}, {}, {"a": "true"}))
    found = {value: metadata.where((OneOf.of("a", value),)).nonzero()[0].tolist() for value in ("1", "true")}
    assert found == {"1": [2], "true": [6]}
    assert metadata.where((OneOf.of("a", True),)).nonzero()[0].tolist() == [0]
    assert metadata.where((OneOf.of("a", 1),)).nonzero()[0].tolist() == [1, 3]


def test_equal_filters_have_equal_hashes() -> None:
    assert OneOf.of("a", True) != OneOf.of("a", 1)
    assert hash(OneOf.of("a", 1, "x", 2)) == hash(OneOf.of("a", 2.0, 1, "x", "x"))
    assert OneOf.of("a", 1, "x", 2) == OneOf.of("a", 2.0, 1, "x", "x")
    assert all_of(OneOf.of("b", 1), Range("a", gt=0)) == all_of(Range("a", gt=0.0), OneOf.of("b", 1))
    assert Range("a", gt=0) != Range("a", gte=0)


@pytest.mark.parametrize("seed", range(40))
def test_where_agrees_with_loop(metadata: Metadata, documents: list[Document], seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = [value for value in MIXED if value is not None]
    picks = [values[place] for place in rng.integers(0, len(values), rng.integers(1, 12))]
    years = [document.metadata["year"] for document in documents if "year" in document.metadata]
    low, high = sorted(float(years[place]) for place in rng.integers(0, len(years), 2))
    ranges = [Range("year", gt=low, lt=high), Range("year", gte=low, lte=high), Range("year", gt=high, lt=low)]
    ranges += [Range("year", gte=low), Range("any", lt=high), Range("any", gte=-2, gt=-1, lte=2**53, lt=2**53 + 1)]
    chosen = ranges[rng.integers(len(ranges))]
    other = [OneOf.of("any", *picks)] if chosen.field == "year" else [OneOf.of("fält", bool(seed % 2))]
    for query_filter in ((chosen,), tuple(other), all_of(chosen, *other)):
        expect(metadata, documents, query_filter)


def test_bounds_at_values() -> None:
    documents = corpus(*({"n": n} for n in (1, 2, 2.0, 3, "2", True)), {}, {"n": None})
    metadata = Metadata.of(documents)
    cases = {"gt": [3], "gte": [1, 2, 3], "lt": [0], "lte": [0, 1, 2]}
    for operator, expected in cases.items():
        assert metadata.where((Range("n", **{operator: 2}),)).nonzero()[0].tolist() == expected
    assert metadata.where((Range("n", gt=2, lt=2),)).sum() == 0
    assert metadata.where((Range("n", gte=-math.inf),)).sum() == 4


def test_large_integers_are_distinguished() -> None:
    """2⁵³ and 2⁵³ + 1 are the same float."""
    metadata = Metadata.of(corpus({"n": 2**53}, {"n": 2**53 + 1}, {"n": 2**64 - 1}))
    assert metadata.where((OneOf.of("n", 2**53 + 1),)).tolist() == [False, True, False]
    assert metadata.where((Range("n", gt=2**53),)).tolist() == [False, True, True]
    assert metadata.where((OneOf.of("n", float(2**64)),)).tolist() == [False, False, False]


def test_unknown_field_message_lists_known(metadata: Metadata) -> None:
    with pytest.raises(InputError, match="no document has the field color; the fields are any, fält, id, year"):
        metadata.where((OneOf.of("color", 1),))
    with pytest.raises(InputError, match="no metadata"):
        Metadata().check((OneOf.of("color", 1),))


def test_unknown_field_message_is_bounded() -> None:
    metadata = Metadata.of(corpus({f"{'x' * 5000}{number}": 1 for number in range(200)}))
    with pytest.raises(InputError, match="and 184 more") as caught:
        metadata.check((OneOf.of("y" * 5000, 1),))
    assert len(str(caught.value)) < 1000


def test_field_of_nulls_has_no_column() -> None:
    assert not Metadata.of(corpus({"a": None}, {})).columns


def test_saved_metadata_is_read_back(metadata: Metadata, documents: list[Document], tmp_path: Path) -> None:
    metadata.save(tmp_path / "m")
    again = Metadata.load(tmp_path / "m", documents)
    assert [*again.columns] == ["any", "fält", "id", "year"]
    for name, column in metadata.columns.items():
        assert [*again.columns[name].values] == [*column.values]
        np.testing.assert_array_equal(again.columns[name].codes, column.codes)
    for value in ("å", True, 2.5):
        expect(again, documents, (OneOf.of("any", value),))
    first = (tmp_path / "m").read_bytes()
    Metadata.of(documents).save(tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == first


FORMS = ("NFC", "NFD")


def _in_form(field: str, value: str) -> dict[str, MetadataValue]:
    return {normalize(field, "stád"): normalize(value, "Zürich"), "tags": [normalize(value, "é"), "x"]}


TWO_FORMS = [
    Document(f"{field}{value}", "text", None, _in_form(field, value))
    for field in FORMS
    for value in FORMS
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("query_filter", "met"),
    [
        ({"stád": "Zürich"}, True),
        ({"stád": ["Zürich", "Bern"]}, True),
        ({"stád": {"ne": "Zürich"}}, False),
        ({"stád": {"nin": ["Zürich"]}}, False),
        ({"$not": {"stád": "Zürich"}}, False),
        ({"tags": "é"}, True),
        ({"tags": {"ne": "é"}}, False),
    ],
)
def test_unicode_forms_of_names_and_values_are_equal(query_filter: dict[str, Any], met: bool, form: str) -> None:
    asked = read_filter(json.loads(normalize(form, json.dumps(query_filter, ensure_ascii=False))))
    assert asked is not None
    assert Metadata.of(TWO_FORMS).where(asked).tolist() == [met] * 4
    assert [holds(asked, document.metadata) for document in TWO_FORMS] == [met] * 4


def test_name_in_two_forms_has_both_values() -> None:
    document = Document("d", "text", None, {normalize("NFC", "é"): "a", normalize("NFD", "é"): "b"})
    for value, met in (("a", True), ("b", True), ("c", False)):
        asked = (OneOf.of("é", value),)
        assert (bool(Metadata.of([document]).where(asked)), holds(asked, document.metadata)) == (met, met)


def test_columns_of_earlier_versions_are_composed(tmp_path: Path) -> None:
    """They were written with the values of both forms apart."""
    city, tag = (sorted(normalize(form, text) for form in FORMS) for text in ("Zürich", "é"))
    records: list[dict[str, MetadataValue]] = [{"city": city[i], "tags": [tag[i]]} for i in (0, 1, 1)]
    old = Metadata(
        {
            "city": Column(SortedValues.of((2, value) for value in city), np.array([0, 1, 1], dtype=np.int32)),
            "tags": TagColumn(
                SortedValues.of((2, value) for value in tag), np.array([0, 1, 1], dtype=np.int32), np.arange(4)
            ),
        }
    )
    old.save(tmp_path / "m")
    loaded = Metadata.load(tmp_path / "m", [Document(str(i), "text", None, record) for i, record in enumerate(records)])
    for field, value in (("city", "Zürich"), ("tags", "é")):
        assert loaded.where((OneOf.of(field, value),)).all()


def _json(*values: object) -> tuple[np.ndarray, np.ndarray]:
    parts = [json.dumps(value).encode() for value in values]
    return np.frombuffer(b"".join(parts), dtype=np.uint8), np.cumsum([0, *map(len, parts)])


def _values(*values: object) -> dict[str, np.ndarray]:
    text, offsets = _json(*values)
    return {"0.json": text, "0.offsets": offsets}


HOSTILE: dict[str, dict[str, np.ndarray | None]] = {
    "no fields": {"fields": None},
    "fields not JSON": {"fields": np.frombuffer(b"[", dtype=np.uint8)},
    "fields not texts": {"fields": np.frombuffer(b"[1]", dtype=np.uint8)},
    "fields unhashable": {"fields": np.frombuffer(b'[["a"]]', dtype=np.uint8)},
    "a field twice": {"fields": np.frombuffer(b'["a","a"]', dtype=np.uint8)},
    "a field too many": {"fields": np.frombuffer(b'["a","b"]', dtype=np.uint8)},
    "an array missing": {"0.codes": None},
    "an array too many": {"1.codes": np.zeros(3, dtype=np.int32)},
    "codes too few": {"0.codes": np.zeros(2, dtype=np.int32)},
    "codes too high": {"0.codes": np.array([0, 1, 3], dtype=np.int32)},
    "codes too low": {"0.codes": np.array([0, 1, -2], dtype=np.int32)},
    "codes of another type": {"0.codes": np.array([0, 1, 2], dtype=np.int64)},
    "codes of two dimensions": {"0.codes": np.zeros((3, 1), dtype=np.int32)},
    "offsets fall": {"0.offsets": np.array([0, 6, 3, 9])},
    "offsets beyond": {"0.offsets": np.array([0, 3, 6, 99])},
    "offsets start late": {"0.offsets": np.array([1, 3, 6, 9])},
    "offsets between": {"0.offsets": np.array([0, 2, 6, 9])},
    "offsets of another type": {"0.offsets": np.array([0, 3, 6, 9], dtype=np.float64)},
    "offsets a scalar": {"0.offsets": np.array(9)},
    "no values": {"0.offsets": np.array([0]), "0.json": np.zeros(0, dtype=np.uint8)},
    "values of another type": {"0.json": np.zeros(9, dtype=np.float32)},
    "values not JSON": {"0.json": np.frombuffer(b"xxxxxxxxx", dtype=np.uint8)},
    "values out of order": _values("b", "a", "c"),
    "values twice": _values("a", "a", "c"),
    "kinds out of order": _values("a", 1, 2),
    "a value null": _values(None, "a", "c"),
    "the only value null": _values(None) | {"0.codes": np.zeros(3, dtype=np.int32)},
    "a value an array": _values("a", "b", ["c"]),
    "a value an object": _values("a", "b", {"c": 1}),
    "of other documents": {"0.codes": np.array([2, 1, 0], dtype=np.int32)},
    "of more documents": {"0.codes": np.array([0, 1, 2, 2], dtype=np.int32)},
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_invalid_metadata_file_is_refused(tmp_path: Path, change: dict[str, np.ndarray | None]) -> None:
    documents, path = corpus({"a": "a"}, {"a": "b"}, {"a": "c"}), tmp_path / "m"
    Metadata.of(documents).save(path)
    arrays = {name: array for name, array in (load_file(path) | change).items() if array is not None}
    save_file(arrays, path)
    with pytest.raises(ReleaseError, match="calibrate again"):
        Metadata.load(path, documents)


@pytest.mark.parametrize("dtype", [b"BF16", b"F8_E4M3", b"F16"])
def test_unsupported_dtypes_are_refused(tmp_path: Path, dtype: bytes) -> None:
    size = 1 if dtype.startswith(b"F8") else 2
    header = b'{"fields":{"dtype":"%s","shape":[1],"data_offsets":[0,%d]}}' % (dtype, size)
    (tmp_path / "m").write_bytes(len(header).to_bytes(8, "little") + header + bytes(size))
    with pytest.raises(ReleaseError, match="calibrate again"):
        Metadata.load(tmp_path / "m", corpus({"a": 1}))


def test_truncated_metadata_file_is_refused(metadata: Metadata, documents: list[Document], tmp_path: Path) -> None:
    metadata.save(tmp_path / "m")
    (tmp_path / "m").write_bytes((tmp_path / "m").read_bytes()[:-9])
    with pytest.raises(ReleaseError, match="calibrate again"):
        Metadata.load(tmp_path / "m", documents)
