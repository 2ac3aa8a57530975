"""The forecast of ρ for a corpus that doubles, beside what the doubled corpus gives."""

from types import SimpleNamespace
from typing import cast

import numpy as np

from taugate.calibration.relevance import LabelledSearch
from taugate.calibration.study.refusing import Best, Growth
from taugate.evidence.abstention.refusal import MAX_LOST, RefusalEvidence, ScoredQuestions
from taugate.policy.arrays import Float32
from taugate.release.refusal_records import QuestionKind
from taugate.retrieval.index.top_k import TopK

DOCUMENTS, QUERIES, OFF_TOPIC, DIMENSION = 400, 1500, 300, 24


def unit(vectors: np.ndarray) -> Float32:
    return cast(Float32, (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32))


def searched(queries: Float32, documents: Float32) -> TopK:
    scores = queries @ documents.T
    positions = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    return TopK(np.take_along_axis(scores, positions, axis=1), positions)


def growth_of(
    documents: Float32, queries: Float32, owners: np.ndarray, off_topic: Float32
) -> tuple[Growth, RefusalEvidence]:
    """Return the growth of a corpus with the evidence for its ρ; query i is answered by document `owners[i]`."""
    top, others = searched(queries, documents), searched(off_topic, documents)
    relevant = top.positions == owners[:, None]
    judged = SimpleNamespace(top=top, relevant=relevant, accuracy=lambda: relevant.any(axis=1).astype(float))
    dataset = SimpleNamespace(documents=documents, parents=None)
    search = cast(LabelledSearch, SimpleNamespace(judged=judged, dataset=dataset))
    found = np.flatnonzero(relevant.any(axis=1))

    def take(best: Best) -> dict[QuestionKind, ScoredQuestions]:
        questions = ScoredQuestions.of(best(others), np.arange(len(off_topic)), np.ones(len(off_topic), dtype=np.bool_))
        assert questions is not None
        return {"off_topic": questions}

    def first(top: TopK) -> Float32:
        return top.scores[:, 0]

    right = ScoredQuestions.of(first(top)[found], found, np.ones(len(found), dtype=np.bool_))
    evidence = RefusalEvidence(right, take(first), 0, MAX_LOST)
    return Growth(search, take, seed=0), evidence


def test_forecast_is_close_to_the_doubled_corpus() -> None:
    forecasts, truths, today = [], [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        documents = unit(rng.normal(size=(2 * DOCUMENTS, DIMENSION)))
        off_topic = unit(rng.normal(size=(OFF_TOPIC, DIMENSION)))
        owners = rng.integers(0, 2 * DOCUMENTS, QUERIES)
        queries = unit(documents[owners] + rng.normal(size=(QUERIES, DIMENSION)) * 0.2)
        old = owners < DOCUMENTS
        growth, evidence = growth_of(documents[:DOCUMENTS], queries[old], owners[old], off_topic)
        after = growth_of(documents, queries, owners, off_topic)[1]
        shares = [(each.kinds["off_topic"].scores < np.float32(evidence.rho)).mean() for each in (evidence, after)]
        forecast = growth.doubled(evidence)
        assert forecast.documents == 2 * DOCUMENTS
        assert growth.doubled(evidence) == forecast
        forecasts.append((forecast.rho, forecast.refused))
        truths.append((after.rho, shares[1]))
        today.append((evidence.rho, shares[0]))
    rho, refused = np.abs(np.array(forecasts) - truths).mean(axis=0)
    unchanged = np.abs(np.array(today) - truths).mean(axis=0)
    assert rho < 0.4 * unchanged[0]
    assert refused < 0.4 * unchanged[1]
