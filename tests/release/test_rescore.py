"""An answer rescored from retrieved documents equals that of the search; other documents are refused."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from taugate.policy.arrays import Float32
from taugate.registry.catalog import find
from taugate.retrieval.documents.filters import OneOf, all_of, sort_key
from taugate.retrieval.query import Answer, Query
from taugate.retrieval.reader import Release, load

QUERY = Query("Do I need a building permit?", 5)
KNOBS = [
    QUERY,
    replace(QUERY, k=3),
    replace(QUERY, k=20),
    replace(QUERY, threshold=0.9),
    replace(QUERY, threshold=0.9, min_results=2),
    replace(QUERY, text="permit " * 50),
]
Positions = NDArray[np.int64]


@pytest.fixture(scope="module")
def release(releases: Path) -> Release:
    return load(find(releases), 1)


def searched(release: Release, query: Query) -> tuple[Answer, Float32]:
    vectors = release.retriever.vectors([query.text])
    (answer,) = release.retriever.answer([query], vectors)
    return answer, vectors[0]


def alike(one: Answer, other: Answer) -> bool:
    return all(repr(getattr(one, field.name)) == repr(getattr(other, field.name)) for field in fields(Answer))


@pytest.mark.parametrize("query", KNOBS)
def test_rescore_equals_search(release: Release, query: Query) -> None:
    answer, vector = searched(release, query)
    assert alike(release.retriever.rescore(query, vector, answer.retrieved), answer)


def test_rescore_equals_filtered_search(release: Release) -> None:
    for field, value in release.documents[0].metadata.items():
        within = all_of(OneOf(field, (sort_key(value),)))
        for query in (
            replace(QUERY, filter=within),
            replace(QUERY, permitted=within),
            replace(QUERY, k=50, filter=within),
        ):
            answer, vector = searched(release, query)
            assert alike(release.retriever.rescore(query, vector, answer.retrieved), answer)


STRANGE = {
    "none": lambda found: found[:0],
    "one less": lambda found: found[:-1],
    "one more": lambda found: np.append(found, np.setdiff1d(np.arange(20), found)[0]),
    "one twice": lambda found: np.append(found[:-1], found[-2]),
    "another order": lambda found: found[::-1],
    "before the first": lambda found: np.append(found[:-1], -1),
    "behind the last": lambda found: np.append(found[:-1], 10**6),
    "all the same": np.zeros_like,
}


@pytest.mark.parametrize("change", STRANGE.values(), ids=STRANGE.keys())
def test_rescore_refuses_altered_positions(release: Release, change: object) -> None:
    answer, vector = searched(release, QUERY)
    with pytest.raises(ValueError, match="documents|positions outside the index"):
        release.retriever.rescore(QUERY, vector, change(answer.retrieved))  # type: ignore[operator]


def test_rescore_refuses_position_outside_filter(release: Release) -> None:
    """Also if its score and its place in the order are plausible."""
    (field, value), *_ = release.documents[0].metadata.items()
    within = all_of(OneOf(field, (sort_key(value),)))
    everything, vector = searched(release, replace(QUERY, k=len(release.documents)))
    mask = release.metadata.where(within)
    outside = everything.retrieved[~mask[everything.retrieved]][:5]
    assert len(outside) == 5
    for query in (replace(QUERY, filter=within), replace(QUERY, permitted=within)):
        with pytest.raises(ValueError, match="outside the index or the filter"):
            release.retriever.rescore(query, vector, outside)


def test_rescore_refuses_nan_vector(release: Release) -> None:
    answer, vector = searched(release, QUERY)
    with pytest.raises(ValueError, match="order"):
        release.retriever.rescore(QUERY, vector * np.nan, answer.retrieved)
