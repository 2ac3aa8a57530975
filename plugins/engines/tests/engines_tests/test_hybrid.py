"""A release over an engine whose score has a lexical part gives the results of the same release in the process."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from engines_tests.servers import NAMES, running
from taugate.errors import EngineUnavailable, ReleaseError
from taugate.policy.arrays import HybridVectors
from taugate.release.layout import LEXICAL
from taugate.retrieval.documents.filters import Filter, Not, OneOf
from taugate.retrieval.engines import corpus
from taugate.retrieval.engines.corpus import EngineHybridIndex
from taugate.retrieval.engines.engine import Collection, EngineAccess
from taugate.retrieval.engines.search import EngineIndex
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.index.top_k import DocumentSubset, TopK
from taugate.retrieval.query import Query
from taugate.retrieval.reader import Release, load
from tests.engine_release import Pair, write_pair

WEIGHT, K = 0.7, 10
NARROW: Filter = (OneOf.of("category", "dolda-fel"),)
FILTERS = {"all": (), "narrow": NARROW, "broad": (Not(NARROW),), "none": (OneOf.of("category", "?"),)}


class CountedCollection:
    """A collection that counts its requests."""

    def __init__(self, collection: Collection) -> None:
        self._collection, self.requests = collection, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        self.requests[name] += 1
        return getattr(self._collection, name)


@pytest.fixture(scope="module", params=NAMES)
def pair(request: pytest.FixtureRequest, releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    with running(request.param) as engine:
        made = write_pair(releases, tmp_path_factory.mktemp("hybrid") / "releases", engine, WEIGHT)
        yield made, EngineAccess(connect=lambda kind: engine, seconds=30)


@pytest.fixture(scope="module")
def both(pair: tuple[Pair, EngineAccess]) -> tuple[Release, Release]:
    made, access = pair
    return load(made.folder / made.here), load(made.folder / made.there, engine=access)


@pytest.fixture(scope="module")
def texts(sample: Path) -> list[str]:
    """Every fourth question of the sample, and two whose words no document has."""
    questions = [orjson.loads(line)["text"] for line in (sample / "queries.jsonl").read_bytes().splitlines()]
    return [*questions[::4], "?!", "zzyzx qwrtpsdf"]


@pytest.fixture(scope="module")
def queries(both: tuple[Release, Release], texts: list[str]) -> HybridVectors:
    encoded = both[0].retriever.encode(texts)
    assert isinstance(encoded, HybridVectors)
    return encoded


def expected(here: Release, queries: HybridVectors, query_filter: Filter) -> TopK:
    if not query_filter:
        return here.retriever.index.search(queries, K)
    return here.retriever.index.search_within(queries, K, DocumentSubset(here.metadata.where(query_filter)))


def check_equal(both: tuple[Release, Release], queries: HybridVectors, query_filter: Filter) -> None:
    """Compare the results one query at a time, as a service searches; a graph may miss one in a hundred."""
    here, there = both
    truth, equal = expected(here, queries, query_filter), 0
    for row in range(len(queries)):
        found = there.retriever.passages.find(queries[row : row + 1], K, query_filter)
        positions = found.positions
        assert found.scores.tobytes() == here.retriever.index.score(queries[row : row + 1], positions).tobytes()
        assert here.retriever.passages.meets(query_filter, positions[0]).all()
        for position in positions[0].tolist():
            assert found.candidates[position].document == here.documents[position]
        equal += positions[0].tolist() == truth.positions[row].tolist()
    assert equal >= 0.99 * len(queries), f"{equal} of {len(queries)}"


@pytest.mark.parametrize(
    "name",
    ["all", "narrow", "none", pytest.param("broad", marks=pytest.mark.slow)],  # which milvus-lite scans slowly
)
def test_results_equal_in_process(both: tuple[Release, Release], queries: HybridVectors, name: str) -> None:
    check_equal(both, queries, FILTERS[name])


@pytest.mark.parametrize("name", ["narrow", pytest.param("broad", marks=pytest.mark.slow)])
def test_unlisted_filter_is_evaluated_by_engine(
    both: tuple[Release, Release], queries: HybridVectors, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "_LISTED", 0)
    check_equal(both, queries, FILTERS[name])


def test_batch_equals_single_queries(both: tuple[Release, Release], queries: HybridVectors) -> None:
    index = both[1].retriever.index
    together = index.search(queries[:100], K)
    for row in range(100):
        alone = index.search(queries[row : row + 1], K)
        assert together.scores[row].tobytes() == alone.scores[0].tobytes()


def test_search_sends_two_requests(both: tuple[Release, Release], queries: HybridVectors) -> None:
    served = both[1].retriever.index
    assert isinstance(served, EngineHybridIndex)
    assert isinstance(served.vectors, EngineIndex)
    collection = CountedCollection(served.vectors._collection)
    index = EngineHybridIndex(EngineIndex(collection, len(served), 30), served.lexical, WEIGHT)  # type: ignore[arg-type]
    collection.requests.clear()
    for row in range(100):
        index.find(queries[row : row + 1], 5)
    assert collection.requests["propose"] <= 1.05 * 100
    assert collection.requests["fetch"] <= 1.05 * 100
    assert not {*collection.requests} - {"propose", "fetch", "dimension"}


def test_approximate_is_marked_unless_all_documents_are_scored(
    both: tuple[Release, Release], queries: HybridVectors
) -> None:
    passages = both[1].retriever.passages
    marked = {name: passages.find(queries[:1], K, item).approximate for name, item in FILTERS.items()}
    assert (marked["all"], marked["broad"], marked["none"]) == (False, True, False)


def test_answers_equal_in_process(both: tuple[Release, Release], texts: list[str]) -> None:
    here, there = both
    queries = [Query(text, 5, filter=NARROW if row % 3 == 0 else None) for row, text in enumerate(texts[:60])]
    vectors = here.retriever.vectors(texts[:60])
    equal = 0
    for one, other in zip(
        here.retriever.answer(queries, vectors), there.retriever.answer(queries, vectors), strict=True
    ):
        if other.positions.tolist() != one.positions.tolist():
            continue
        equal += 1
        assert other.scores.tobytes() == one.scores.tobytes()
        assert other.read(there.documents) == one.read(here.documents)
        assert {*other.documents} == {*other.positions.tolist()}
        assert (other.calibrated, other.reason, other.considered) == (one.calibrated, one.reason, one.considered)
    assert equal >= 59


def test_postings_of_other_documents_are_refused(
    pair: tuple[Pair, EngineAccess], both: tuple[Release, Release]
) -> None:
    made, access = pair
    file = made.folder / made.there / LEXICAL
    content, index = file.read_bytes(), both[0].retriever.index
    assert isinstance(index, HybridIndex)
    try:
        index.lexical.subset(np.arange(len(index) - 1)).save(file)
        with pytest.raises(ReleaseError, match=LEXICAL.replace(".", r"\.")):
            load(made.folder / made.there, engine=access)
    finally:
        file.write_bytes(content)


def test_search_without_time_says_that_engine_is_away(both: tuple[Release, Release], queries: HybridVectors) -> None:
    served = both[1].retriever.index
    assert isinstance(served, EngineHybridIndex)
    assert isinstance(served.vectors, EngineIndex)
    late = EngineIndex(served.vectors._collection, len(served), 0)
    passages = replace(both[1].retriever.passages, hybrid=EngineHybridIndex(late, served.lexical, WEIGHT))  # type: ignore[type-var]
    with pytest.raises(EngineUnavailable):
        passages.find(queries[:1], K, ())
