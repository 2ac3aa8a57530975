"""Fields with lists of strings: a filter selects the documents that contain a string."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from taugate.errors import InputError, ReleaseError
from taugate.retrieval.documents.columns import Column, TagColumn
from taugate.retrieval.documents.filters import OneOf, Range, all_of, both
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import Document

RECORDS: list[dict[str, Any]] = [
    {"tags": ["pump", "seal"], "year": 2001},
    {"tags": "pump"},
    {},
    {"tags": []},
    {"tags": ["seal", "valve", "seal"]},
    {"tags": None},
    {"tags": [""], "year": 2003},
    {"tags": 7},
]


def corpus(*records: dict[str, Any]) -> list[Document]:
    return [Document(f"d{position}", "text", None, record) for position, record in enumerate(records)]


def found(*conditions: OneOf | Range) -> list[int]:
    return [*np.flatnonzero(Metadata.of(corpus(*RECORDS)).where(all_of(*conditions)))]


def test_tag_equality_means_contains() -> None:
    assert found(OneOf.of("tags", "pump")) == [0, 1]
    assert found(OneOf.of("tags", "seal")) == [0, 4]
    assert found(OneOf.of("tags", "")) == [6]
    assert found(OneOf.of("tags", "pum")) == []
    assert found(OneOf.of("tags", 7)) == [7]


def test_tag_list_means_any_of() -> None:
    assert found(OneOf.of("tags", "valve", "pump", "absent")) == [0, 1, 4]
    assert found(*both((OneOf.of("tags", "pump"),), (OneOf.of("tags", "seal"),))) == [0]
    assert found(OneOf.of("tags", "pump", ""), Range("year", gt=2001)) == [6]


def test_tag_bounds_are_refused_by_field() -> None:
    metadata = Metadata.of(corpus(*RECORDS))
    for check in (metadata.check, metadata.check_kinds, metadata.where):
        with pytest.raises(InputError, match="^tags holds lists of strings, which have no order; name a string$"):
            check((Range("tags", gt=1),))
    metadata.check((Range("year", gt=1),))


def test_empty_tag_lists_have_no_column(tmp_path: Path) -> None:
    assert not Metadata.of(corpus({"a": []}, {"a": None})).columns
    metadata = Metadata.of(corpus({"a": "x", "b": 1, "c": []}, {"a": "y", "b": "z", "c": None}))
    assert all(isinstance(column, Column) for column in metadata.columns.values())
    metadata.save(tmp_path / "m")
    assert {*load_file(tmp_path / "m")} == {
        "fields",
        *(f"{i}.{part}" for i in (0, 1) for part in ("json", "offsets", "codes")),
    }


def test_tag_column_agrees_with_loop() -> None:
    rng = np.random.default_rng(3)
    records = [{"tags": [f"t{tag}" for tag in rng.integers(0, 50, rng.integers(0, 9))]} for _ in range(3000)]
    column = Metadata.of(corpus(*records)).columns["tags"]
    assert isinstance(column, TagColumn)
    for query_filter in (["t0"], ["t1", "t49"], [f"t{tag}" for tag in range(50)], ["absent"]):
        assert column.where_one_of(OneOf.of("tags", *query_filter)).tolist() == [
            bool({*query_filter} & {*record["tags"]}) for record in records
        ]
    assert column.codes.nbytes <= 4 * sum(max(1, len(record["tags"])) for record in records)


HOSTILE = {
    "starts too few": {"0.starts": np.array([0, 2, 3])},
    "starts late": {"0.starts": np.array([1, 2, 3, 4])},
    "starts end early": {"0.starts": np.array([0, 1, 2, 3])},
    "starts end late": {"0.starts": np.array([0, 2, 3, 5])},
    "starts fall": {"0.starts": np.array([0, 3, 2, 4])},
    "a document without codes": {"0.starts": np.array([0, 2, 2, 4])},
    "starts of another type": {"0.starts": np.array([0, 2, 3, 4], dtype=np.int32)},
    "starts of no field": {"1.starts": np.array([0, 2, 3, 4])},
    "codes too high": {"0.codes": np.array([0, 3, 2, -1], dtype=np.int32)},
    "codes too low": {"0.codes": np.array([0, -2, 2, -1], dtype=np.int32)},
    "codes of two dimensions": {"0.codes": np.array([[0], [1], [2], [-1]], dtype=np.int32)},
    "of other documents": {"0.codes": np.array([1, 2, 0, -1], dtype=np.int32)},
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_invalid_tag_file_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    documents, path = corpus({"a": ["x", "y"]}, {"a": "z"}, {}), tmp_path / "m"
    Metadata.of(documents).save(path)
    assert Metadata.load(path, documents).columns["a"].keys(0) == ((2, "x"), (2, "y"))
    save_file(load_file(path) | change, path)
    with pytest.raises(ReleaseError, match="calibrate again"):
        Metadata.load(path, documents)
