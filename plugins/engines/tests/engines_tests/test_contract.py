"""The contract of all indexes and engines: equal scores, order, ties, filters, documents and errors."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np
import pytest

from engines_tests.servers import NAMES, running
from taugate.errors import InputError, ReleaseError
from taugate.release.engine import EngineRecord, GraphParameters
from taugate.release.names import DATES
from taugate.retrieval.documents.filters import AnyOf, Filter, Not, OneOf, Range
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.engines.engine import Collection, Engine, Rows, open_verified
from taugate.retrieval.engines.search import EngineIndex
from taugate.retrieval.index.approximate import ApproximateIndex, build
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import DocumentSubset, Index
from tests.retrieval.engines.corpus import COPIES, D, N, corpus, recorded, soon, upload
from tests.retrieval.engines.dictionary_store import DictionaryStore
from tests.vectors import unit

K = 10
ROWS = "rows"  # an engine of the core
# A graph is built in parallel, and differs from one build to the next: in 610 results, 30 may be missing.
RECALL = 0.95
FEW = 120  # rows of a collection that is to be refused


@pytest.fixture(scope="module")
def rows() -> Rows:
    return corpus()


@pytest.fixture(scope="module")
def queries(rows: Rows) -> np.ndarray:
    rng = np.random.default_rng(6)
    near = rows.vectors[rng.integers(0, N, 60)] + 0.2 * rng.standard_normal((60, D))
    return unit(np.concatenate([rows.vectors[COPIES[:1]], near]))


@pytest.fixture(scope="module")
def exact(rows: Rows) -> FlatIndex:
    return FlatIndex.build(rows.vectors)


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[str], Engine]]:
    """Engines by name, each started once."""
    with ExitStack() as stack:
        started: dict[str, Engine] = {}

        def server(name: str) -> Engine:
            if name not in started:
                started[name] = DictionaryStore() if name == ROWS else stack.enter_context(running(name))
            return started[name]

        yield server


@pytest.fixture(scope="module", params=[ROWS, *NAMES])
def engine(request: pytest.FixtureRequest, servers: Callable[[str], Engine]) -> Engine:
    return servers(request.param)


@contextmanager
def uploaded(engine: Engine, record: EngineRecord, content: Rows, *, finished: bool = True) -> Iterator[None]:
    engine.drop(record.collection, soon())
    upload(engine, record.collection, content, finished=finished)
    try:
        assert record.collection in engine.names(soon())
        yield
    finally:
        engine.drop(record.collection, soon())
        assert record.collection not in engine.names(soon())


@pytest.fixture(scope="module")
def collection(engine: Engine, rows: Rows) -> Iterator[Collection]:
    record = recorded(engine, rows)
    with uploaded(engine, record, rows):
        yield open_verified(engine, record, D, soon())


@pytest.fixture(scope="module")
def engine_index(collection: Collection) -> EngineIndex:
    return EngineIndex(collection, N, 60)


@pytest.fixture(scope="module", params=["flat", "hnsw", ROWS, *NAMES])
def index(request: pytest.FixtureRequest, rows: Rows, servers: Callable[[str], Engine]) -> Iterator[Index]:
    if request.param in ("flat", "hnsw"):
        built = build(request.param, rows.vectors)
        if isinstance(built, ApproximateIndex):
            built.breadth = GraphParameters().breadth
        yield built
        return
    engine = servers(request.param)
    record = recorded(engine, rows, "index")
    with uploaded(engine, record, rows):
        yield EngineIndex(open_verified(engine, record, D, soon()), N, 60)


def recall(found: np.ndarray, exact: np.ndarray) -> float:
    if not exact.size:
        return 1.0
    return float((found[:, :, None] == exact[:, None, :]).any(axis=1).mean())


def test_scores_equal_exact_and_recall_is_high(index: Index, exact: FlatIndex, queries: np.ndarray) -> None:
    top, truth = index.search(queries, K), exact.search(queries, K)
    assert top.scores.dtype == np.float32
    assert top.scores.tobytes() == exact.score(queries, top.positions).tobytes()
    assert recall(top.positions, truth.positions) >= RECALL
    complete = (top.positions == truth.positions).all(axis=1)
    assert top.scores[complete].tobytes() == truth.scores[complete].tobytes()
    assert (len(index), index.dimension) == (N, D)


def test_ties_go_to_lower_position(index: Index, queries: np.ndarray) -> None:
    top = index.search(queries[:1], K)
    assert top.positions[0].tolist() == COPIES[:K].tolist()
    assert len({*top.scores[0].tolist()}) == 1


def test_search_is_independent_of_batch(index: Index, queries: np.ndarray) -> None:
    together = index.search(queries, K)
    for row in range(0, len(queries), 20):
        alone = index.search(queries[row : row + 1], K)
        assert alone.positions[0].tolist() == together.positions[row].tolist()
        assert alone.scores[0].tobytes() == together.scores[row].tobytes()


def test_subset_search_is_exact(index: Index, exact: FlatIndex, queries: np.ndarray) -> None:
    mask = np.zeros(N, dtype=bool)
    mask[3::50] = True
    for subset in (DocumentSubset(mask), DocumentSubset(np.zeros(N, dtype=bool))):
        top, truth = index.search_within(queries[:3], K, subset), exact.search_within(queries[:3], K, subset)
        assert top.positions.tolist() == truth.positions.tolist()
        assert top.scores.tobytes() == truth.scores.tobytes()


def test_k_above_rows_returns_all(index: Index, exact: FlatIndex, queries: np.ndarray) -> None:
    assert index.search(queries[:1], 3).positions.shape == (1, 3)
    top = index.score(queries[:2], np.array([[5, 5, 0], [N - 1, 4, 4]]))
    assert top.tobytes() == exact.score(queries[:2], np.array([[5, 5, 0], [N - 1, 4, 4]])).tobytes()


ODD = "odd [\"name\\']"
FILTERS: dict[str, Filter] = {
    "one text": (OneOf.of("lang", "sv"),),
    "one of two": (OneOf.of("lang", "sv", "de"),),
    "a number, and an equal float": (OneOf.of("year", 1995.0),),
    "1 is not true": (OneOf.of("one", 1),),
    "true is not 1": (OneOf.of("one", True),),
    '"1" is neither': (OneOf.of("one", "1"),),
    "a tag": (OneOf.of("tags", "t3"),),
    "a tag that no statement can hold": (OneOf.of("tags", "å\u0000ä"),),
    "a quoted tag": (OneOf.of("tags", '"quoted" \\'),),
    "bounds": (Range("year", gte=1993, lt=1997),),
    "bounds of a field that no statement can name": (Range(ODD, gt=-100.5, lte=-20),),
    "bounds of dates": (Range("day", gte=1_110_000_000.0, lt=1_330_558_200.25, kind=DATES),),
    "not bounds of dates": (Not((Range("day", gt=1_330_558_200.25, kind=DATES),)),),
    "bounds of what is no number": (Range("lang", gt=0),),
    "not, of a field that is missing": (Not((OneOf.of("tags", "t3"),)),),
    "not bounds": (Not((Range("rare", gt=1),)),),
    "or": AnyOf.of([(OneOf.of("lang", "sv"), OneOf.of("one", 1)), (Range("year", gt=2010),)]),
    "all at once": (
        OneOf.of("lang", "en"),
        Range("year", gte=1995),
        Not((OneOf.of("one", True), OneOf.of("lang", "en"))),
    ),
    "the largest integer": (OneOf.of("rare", 2**53),),
    "none": (OneOf.of("lang", "fi"),),
    "another field of the same value": (OneOf.of("tags", "sv"),),
}


@pytest.fixture(scope="module")
def metadata(rows: Rows) -> Metadata:
    return Metadata.of(rows.documents)


@pytest.mark.parametrize("query_filter", FILTERS.values(), ids=FILTERS)
def test_filter_selects_same_documents(collection: Collection, metadata: Metadata, query_filter: Filter) -> None:
    mask = metadata._all_hold(query_filter)
    assert collection.where(query_filter, N, soon()).tolist() == np.flatnonzero(mask).tolist()


@pytest.mark.parametrize("name", ["one text", "a tag", "bounds", "not bounds", "the largest integer", "none"])
def test_filtered_search_equals_exact(
    engine_index: EngineIndex, exact: FlatIndex, metadata: Metadata, queries: np.ndarray, name: str
) -> None:
    query_filter = FILTERS[name]
    mask = metadata._all_hold(query_filter)
    found = engine_index.find(queries, K, query_filter)
    truth = exact.search_within(queries, K, DocumentSubset(mask))
    assert found.positions.shape == truth.positions.shape
    assert mask[found.positions].all()
    same = (found.positions == truth.positions).all(axis=1)
    assert recall(found.positions, truth.positions) >= RECALL
    assert found.scores[same].tobytes() == truth.scores[same].tobytes()


def test_candidates_include_documents(engine_index: EngineIndex, rows: Rows, queries: np.ndarray) -> None:
    found = engine_index.find(queries[:5], K)
    for position in np.unique(found.positions).tolist():
        assert found.candidates[position].document == rows.documents[position]


def test_fetched_rows_equal_uploaded(collection: Collection, rows: Rows) -> None:
    positions = np.array([N - 1, 0, 699, 700, 9])
    read = collection.fetch(positions, soon())
    assert read.vectors.dtype == np.float32
    assert read.vectors.tobytes() == rows.vectors[positions].tobytes()
    assert [*read.documents] == [rows.documents[i] for i in positions]
    assert collection.fetch(np.array([], dtype=np.int64), soon()).vectors.shape == (0, D)


def test_find_by_passage_and_document_id(collection: Collection, rows: Rows) -> None:
    assert collection.find("d17", soon()).tolist() == [17]
    assert collection.find("d9#0", soon()).tolist() == [9]
    assert collection.find("p0", soon()).tolist() == [9, 19]
    assert collection.find('d1" or 1 == 1', soon()).tolist() == []


def test_missing_position_is_named(collection: Collection) -> None:
    with pytest.raises(ReleaseError, match=f"no row at position {N}; upload"):
        collection.fetch(np.array([3, N]), soon())


def test_wrong_query_dimension_is_refused(engine_index: EngineIndex) -> None:
    with pytest.raises(ReleaseError, match=f"dimension {D}, but queries have 5"):
        engine_index.search(np.ones((1, 5), dtype=np.float32), K)


def test_large_integers_are_refused_by_field(engine: Engine, collection: Collection) -> None:
    for query_filter in ((OneOf.of("year", 2**53 + 1),), (Not((Range("year", lt=-(2**53) - 1),)),)):
        with pytest.raises(InputError, match="year: an integer beyond 2⁵³"):
            collection.where(query_filter, 1, soon())
    one = corpus(1)
    bad = Rows(one.vectors, [replace(one.documents[0], metadata={"serial": 2**60})])
    with (
        uploaded(engine, recorded(engine, one, "bad"), one, finished=False),
        pytest.raises(InputError, match="document 'd0': serial: an integer beyond 2⁵³"),
    ):
        engine.upload(recorded(engine, one, "bad").collection, 1, bad, soon())


def test_mismatch_with_release_has_own_message(engine: Engine, collection: Collection) -> None:
    few = corpus(FEW)
    fewer = corpus(FEW - 1)
    altered = Rows(few.vectors.copy(), few.documents)
    altered.vectors[77, 3] = np.nextafter(altered.vectors[77, 3], np.float32(1))
    reworded = Rows(few.vectors, [*few.documents[:-1], replace(few.documents[-1], text="other")])
    for content, finished, message in (
        (few, False, "has no finished index"),
        (fewer, True, f"holds {FEW - 1} rows, not {FEW}"),
        (altered, True, "vectors or documents differ"),
        (reworded, True, "vectors or documents differ"),
    ):
        record = recorded(engine, few, salt=message)
        record = record.model_copy(update={"shards": (*record.shards, str(content is altered))})
        with uploaded(engine, record, content, finished=finished), pytest.raises(ReleaseError, match=message):
            open_verified(engine, record, D, soon())

    good = recorded(engine, corpus())
    with pytest.raises(ReleaseError, match=f"dimension {D}, but the release's encoder makes 7"):
        open_verified(engine, good, 7, soon())
    with pytest.raises(ReleaseError, match=f"no collection {recorded(engine, few).collection}; upload it"):
        open_verified(engine, recorded(engine, few), D, soon())
    other = "pgvector" if engine.kind == "milvus" else "milvus"
    with pytest.raises(ReleaseError, match=f"are in {other}, not in {engine.kind}"):
        open_verified(engine, good.model_copy(update={"kind": other}), D, soon())
    with pytest.raises(ReleaseError, match="already has a collection"):
        engine.create(good.collection, D, soon())
    with pytest.raises(InputError, match="is not the name of a collection"):
        engine.drop("tg_a; DROP TABLE x", soon())


def test_breadth_does_not_change_collection(engine: Engine) -> None:
    record = recorded(engine, corpus(FEW))
    assert record.model_copy(update={"breadth": 500}).collection == record.collection
    assert record.model_copy(update={"edges": 8}).collection != record.collection


def test_odd_float_bits_survive(engine: Engine) -> None:
    vectors = corpus(3).vectors.copy()
    vectors[0] = np.float32(1e-42)  # subnormal
    vectors[0, 0], vectors[1, 5], vectors[2, 7] = 1, -0.0, np.nextafter(np.float32(0.1), np.float32(1))
    content = Rows(vectors, corpus(3).documents)
    record = recorded(engine, content)
    with uploaded(engine, record, content):
        read = open_verified(engine, record, D, soon()).fetch(np.arange(3), soon())
    assert read.vectors.tobytes() == vectors.tobytes()
