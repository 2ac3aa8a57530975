"""Documents that are searched in chunks, measured as the definitions of docs/calibration.md say, word by word."""

import itertools
import json
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taugate.calibration.acceptance.baseline import SearchTrial
from taugate.calibration.metrics.inputs import chance_of_a_hit, clusters, grades_of, judge_queries, relevant_passages
from taugate.data.beir import read_dataset
from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.acceptance import DEPTH
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import HoldoutSplit
from taugate.evidence.risk.steps import LossSteps
from taugate.retrieval.index.flat import FlatIndex

Corpus = list[tuple[str, str | None]]  # `_id` and parent of each passage
Judgements = dict[str, dict[str, int]]  # grades by the ids of a query and of what it was judged against


@dataclass(frozen=True)
class World:
    """A small data set with vectors, and the decision scores of some policy."""

    corpus: Corpus
    qrels: Judgements
    vectors: np.ndarray
    queries: np.ndarray
    decisions: np.ndarray
    k: int

    def similarity(self) -> np.ndarray:
        return (self.queries.astype(float) @ self.vectors.astype(float).T).astype(np.float32)

    def ranking(self, row: int, depth: int) -> list[int]:
        return np.argsort(-self.similarity()[row], kind="stable")[:depth].tolist()


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Up to 12 passages, of which any may be chunks of one of four documents, their chunks in any order.

    Some documents have the id of a passage.
    """
    size = draw(st.integers(2, 12))
    parents = [draw(st.sampled_from([None, "A", "B", "C", "p0"])) for _ in range(size)]
    corpus = [(f"p{row}", None if row == 0 and parent == "p0" else parent) for row, parent in enumerate(parents)]
    names = sorted({name for passage in corpus for name in passage if name})
    grades = st.dictionaries(st.sampled_from(names), st.integers(0, 3), min_size=1, max_size=5)
    qrels = {f"q{row}": draw(grades) for row in range(draw(st.integers(1, 5)))}
    qrels["q0"] |= {names[0]: 1}
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    vectors, queries = (rng.standard_normal((count, 4)).astype(np.float32) for count in (size, len(qrels)))
    k = draw(st.integers(1, size))
    decisions = (rng.integers(0, 6, (len(qrels), k)) / 4).astype(np.float32)
    return World(corpus, qrels, unit(vectors), unit(queries), decisions, k)


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def write(folder: Path, corpus: Corpus, qrels: Judgements) -> None:
    records = [
        {"_id": name, "text": f"text of {name}"} | ({"parent": parent, "span": [0, 9]} if parent else {})
        for name, parent in corpus
    ]
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    requested = [json.dumps({"_id": name, "text": f"{name}?"}) for name in qrels]
    (folder / "queries.jsonl").write_text("\n".join(requested), encoding="utf-8")
    rows = [f"{query}\t{name}\t{grade}" for query, judged in qrels.items() for name, grade in judged.items()]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(rows), encoding="utf-8")


def read(corpus: Corpus, qrels: Judgements) -> tuple[list[LabelledQuery], list[LabelledQuery], np.ndarray | None]:
    """The answerable queries, the others, and `parents`, read from files."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "data", corpus, qrels)
        (Path(folder) / "spool").mkdir()
        dataset = read_dataset(Path(folder) / "data", "test", Path(folder) / "spool")
        return dataset.answerable, dataset.unanswerable, dataset.documents.parents


# The definitions, on ids.


def document_of(corpus: Corpus, position: int) -> object:
    """A passage that is no chunk is a document of its own, also where chunks have a parent of its name."""
    name, parent = corpus[position]
    return parent or ("whole", name)


def named_by(corpus: Corpus, identifier: str) -> list[int]:
    exact = [position for position, (name, _) in enumerate(corpus) if name == identifier]
    return exact or [position for position, (_, parent) in enumerate(corpus) if parent == identifier]


def relevant_of(corpus: Corpus, judged: dict[str, int]) -> set[int]:
    return {position for name, grade in judged.items() if grade >= 1 for position in named_by(corpus, name)}


def grades_by_document(corpus: Corpus, judged: dict[str, int]) -> dict[object, int]:
    result: dict[object, int] = {}
    for name, grade in judged.items():
        for position in named_by(corpus, name):
            document = document_of(corpus, position)
            result[document] = max(grade, result.get(document, 0))
    return {document: grade for document, grade in result.items() if grade >= 1}


def ndcg_of(corpus: Corpus, judged: dict[str, int], shown: list[int | None], k: int) -> float:
    """shown: the passage at each rank, None where it is dropped."""
    relevant, grades = relevant_of(corpus, judged), grades_by_document(corpus, judged)
    gained, result = 0.0, set()
    for rank, position in enumerate(shown[:k], start=1):
        if position in relevant and (document := document_of(corpus, position)) not in result:
            result.add(document)
            gained += grades[document] / math.log2(rank + 1)
    best = sorted(grades.values(), reverse=True)[:k]
    return gained / sum(grade / math.log2(rank + 1) for rank, grade in enumerate(best, start=1))


def cluster_numbers(corpus: Corpus, qrels: list[dict[str, int]]) -> list[int]:
    """Join queries that share a document until nothing changes, then number them by their first query."""
    about = []
    for judged in qrels:
        positive = {name for name, grade in judged.items() if grade >= 1} or set(judged)
        about.append({document_of(corpus, position) for name in positive for position in named_by(corpus, name)})
    labels = list(range(len(about)))
    for _ in about:
        for one, mine in enumerate(about):
            for other, theirs in enumerate(about):
                if mine & theirs:
                    labels[one] = labels[other] = min(labels[one], labels[other])
    numbers: dict[int, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels]


@given(worlds())
@settings(max_examples=150, deadline=None)
def test_figures_equal_their_definitions(world: World) -> None:
    answerable, unanswerable, parents = read(world.corpus, world.qrels)
    judged_against = [world.qrels[query.id] for query in answerable]
    rows = [int(query.id[1:]) for query in answerable]
    judged = judge_queries(answerable, world.queries[rows], FlatIndex.build(world.vectors), world.k, parents)
    decisions = world.decisions[rows]
    similarity = world.similarity()
    assert [query.id for query in answerable] == [
        name for name, grades in world.qrels.items() if any(grades.values())
    ], "a query with zero scores only is unanswerable"
    for place, (row, grades) in enumerate(zip(rows, judged_against, strict=True)):
        ranking, relevant = world.ranking(row, world.k), relevant_of(world.corpus, grades)
        assert judged.top.positions[place].tolist() == ranking
        assert judged.accuracy()[place] == any(position in relevant for position in ranking)
        assert judged.ndcg()[place] == pytest.approx(ndcg_of(world.corpus, grades, [*ranking], world.k), abs=1e-12)
        assert judged.correct[place] == similarity[row, sorted(relevant)].max()
    for tau in np.arange(-1, 8, dtype=np.float32) / 4:
        kept = decisions >= tau
        for place, (row, grades) in enumerate(zip(rows, judged_against, strict=True)):
            ranking = world.ranking(row, world.k)
            shown = [position if keeps else None for position, keeps in zip(ranking, kept[place], strict=True)]
            expected = ndcg_of(world.corpus, grades, shown, world.k)
            assert judged.ndcg(kept)[place] == pytest.approx(expected, abs=1e-12)
        for steps, metric in ((LossSteps.of_accuracy, "accuracy"), (LossSteps.of_ndcg, "ndcg")):
            assert steps(judged, decisions).at(np.array([tau])) == pytest.approx(judged.lost(metric, kept).sum())
    every = answerable + unanswerable
    labels = clusters(every).tolist()
    assert labels == cluster_numbers(world.corpus, [world.qrels[query.id] for query in every])


@given(worlds())
@settings(max_examples=50, deadline=None)
def test_gate_outcomes_equal_definitions(world: World) -> None:
    answerable, _, parents = read(world.corpus, world.qrels)
    rows = [int(query.id[1:]) for query in answerable]
    result = SearchTrial.build(answerable, world.queries[rows], world.vectors, world.k, parents).outcomes()
    for place, row in enumerate(rows):
        grades, ranking = world.qrels[f"q{row}"], world.ranking(row, max(world.k, DEPTH))
        hit = any(position in relevant_of(world.corpus, grades) for position in ranking[: world.k])
        assert result.accuracy[place] == hit
        assert result.ndcg[place] == pytest.approx(ndcg_of(world.corpus, grades, [*ranking], DEPTH), abs=1e-12)


@given(worlds())
@settings(max_examples=50, deadline=None)
def test_further_chunks_of_document_are_unlabelled(world: World) -> None:
    answerable, _, parents = read(world.corpus, world.qrels)
    rows = [int(query.id[1:]) for query in answerable]
    judged = judge_queries(answerable, world.queries[rows], FlatIndex.build(world.vectors), world.k, parents)
    passages = {name for name, _ in world.corpus}
    for place, row in enumerate(rows):
        grades, seen = world.qrels[f"q{row}"], set()
        complete = {name for name, grade in grades.items() if grade >= 1 and name not in passages}
        for rank, position in enumerate(world.ranking(row, world.k)):
            parent = world.corpus[position][1]
            assert judged.labelled[place, rank] == (parent not in complete or parent not in seen)
            assert judged.relevant[place, rank] == (position in relevant_of(world.corpus, grades))
            seen.add(parent)


@given(worlds())
@settings(max_examples=50, deadline=None)
def test_trivial_parents_change_no_figure(world: World) -> None:
    """`parents` that make every passage its own document change nothing, to the last bit."""
    plain = [(name, None) for name, _ in world.corpus]
    known = {name for name, _ in plain}
    qrels = {
        query: {name: grade for name, grade in item.items() if name in known} for query, item in world.qrels.items()
    }
    qrels["q0"] = qrels["q0"] | {"p0": 2}
    qrels = {query: item for query, item in qrels.items() if item}
    answerable, _, parents = read(plain, qrels)
    assert parents is None
    own = np.arange(len(plain), dtype=np.int32)
    in_chunks = [LabelledQuery(item.id, item.text, item.relevant, chunks={}) for item in answerable]
    vectors = world.queries[[int(query.id[1:]) for query in answerable]]
    index = FlatIndex.build(world.vectors)
    one = judge_queries(answerable, vectors, index, world.k)
    other = judge_queries(in_chunks, vectors, index, world.k, own)
    decisions = world.decisions[: len(answerable)]
    for name in ("grades", "ideal", "correct", "labelled", "relevant"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name
    assert one.ndcg().tobytes() == other.ndcg().tobytes()
    assert one.ndcg(decisions >= 0.5).tobytes() == other.ndcg(decisions >= 0.5).tobytes()
    steps = LossSteps.of_ndcg(one, decisions), LossSteps.of_ndcg(other, decisions)
    assert steps[0].losses.tobytes() == steps[1].losses.tobytes()


def labelled(qrels: Judgements) -> tuple[LabelledQuery, np.ndarray]:
    """One query of a corpus whose document A has three chunks, and B two."""
    (query, *_), _, parents = read(CHUNKED, qrels)
    assert parents is not None
    return query, parents


CHUNKED: Corpus = [("A#0", "A"), ("A#1", "A"), ("B#0", "B"), ("A#2", "A"), ("B#1", "B"), ("c", None)]


@pytest.mark.parametrize(
    ("judged", "relevant", "passages"),
    [
        ({"A": 1}, {0: 1}, [0, 1, 3]),
        ({"A#1": 2}, {0: 2}, [1]),
        ({"A": 1, "A#1": 3}, {0: 3}, [0, 1, 3]),
        ({"A": 0, "A#1": 1}, {0: 1}, [1]),
        ({"A": 1, "A#1": 0}, {0: 1}, [0, 1, 3]),
        ({"A#1": 1, "A#2": 2, "c": 1}, {0: 2, 5: 1}, [5, 1, 3]),
        ({"B": 2, "A": 0}, {2: 2}, [2, 4]),
    ],
    ids=["document", "chunk", "both", "only the chunk", "not that chunk", "two chunks", "another document"],
)
def test_relevant_passages_of_judgements(judged: dict[str, int], relevant: dict[int, int], passages: list[int]) -> None:
    query, parents = labelled({"q0": judged})
    assert query.relevant == relevant
    assert sorted(relevant_passages([query], parents)[0].tolist()) == sorted(passages)


def test_queries_sharing_document_are_held_out_together() -> None:
    """Forty queries about ten documents, each naming another chunk of its document."""
    corpus = [(f"{document}#{chunk}", f"{document}") for chunk in range(4) for document in range(10)]
    qrels = {f"q{row}": {f"{row % 10}#{row // 10}": 1} for row in range(40)}
    queries, _, _ = read(corpus, qrels)
    units = SamplingUnits.from_clusters(clusters(queries))
    assert (units.unit, units.count, units.design_effect) == ("document", 10, 4)
    split = HoldoutSplit.by_document(np.random.default_rng(0), units.clusters, 0.3)
    documents = [{row % 10 for row in part.tolist()} for part in (split.calibration, split.heldout)]
    assert documents[0] | documents[1] == set(range(10))
    assert not documents[0] & documents[1]


def test_document_labels_need_parents() -> None:
    query, parents = labelled({"q0": {"A": 1}})
    with pytest.raises(AssertionError, match="without its `parents`"):
        grades_of([query], np.array([[0, 1]]), None)
    assert grades_of([query], np.array([[1, 2]]), parents).tolist() == [[1, 0]]


def test_chance_of_hit_counts_chunks() -> None:
    """Against every draw of K passages that there is."""
    corpus: Corpus = [*CHUNKED, ("c2", None), ("c3", None)]
    qrels = {"q0": {"A": 1}, "q1": {"c": 2}, "q2": {"A#1": 1, "B": 1}}
    queries, _, parents = read(corpus, qrels)
    for k in (1, 2, 3, 6, 8):
        draws = list(itertools.combinations(range(8), k))
        item = [[0, 1, 3]], [[5]], [[1], [2, 4]]  # the relevant passages of each document, by query
        expected = np.mean(
            [np.mean([np.mean([not {*d}.isdisjoint(one) for d in draws]) for one in query]) for query in item]
        )
        assert chance_of_a_hit(queries, parents, 8, k) == pytest.approx(expected)
    plain, _, none = read([(name, None) for name, _ in corpus], {"q0": {"c": 1}, "q1": {"c": 1, "c2": 1}})
    assert chance_of_a_hit(plain, none, 8, 5) == 5 / 8
