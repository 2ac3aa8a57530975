"""Recall@100 and Precision@10 count documents, whichever chunks of them are found."""

import numpy as np
import pytest

from taugate.calibration.metrics.inputs import DeepFigures
from taugate.data.labelled_queries import LabelledQuery
from taugate.policy.arrays import Float32
from taugate.retrieval.index.flat import FlatIndex


def _on_a_line(count: int) -> Float32:
    """Unit vectors, each less similar to the first than the one before."""
    angles = np.linspace(0, np.pi, count)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_recall_and_precision_count_relevant_documents() -> None:
    queries = [LabelledQuery("near", "text", {0: 1, 4: 2}), LabelledQuery("far", "text", {99: 1, 100: 1})]
    vectors = _on_a_line(150)
    figures = DeepFigures.measure(queries, vectors[[0, 0]], FlatIndex.build(vectors))
    assert figures == DeepFigures(recall=pytest.approx(0.75), precision=pytest.approx(0.1))


def test_recall_counts_chunks_of_document_once() -> None:
    parents = np.array([0, 0, 2, 2, 4], np.int32)
    vectors = _on_a_line(5)
    queries = [LabelledQuery("q", "text", {0: 1, 4: 1})]
    figures = DeepFigures.measure(queries, vectors[:1], FlatIndex.build(vectors), parents)
    assert figures == DeepFigures(recall=1.0, precision=pytest.approx(0.2))
