"""The chunk study ranks documents by their best chunk, rebuilds articles, and keeps what it has ranked."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from benchmarks.checkout import ROOT
from benchmarks.chunks.comparison import bootstrapped_means, per_query
from benchmarks.chunks.encoders import StudyEncoder
from benchmarks.chunks.ranking import WHOLE, Rankings, Setting, best_documents, chunk_texts
from benchmarks.chunks.study_sets import StudySet, articles, covidqa_articles
from taugate.calibration.metrics.clusters import cluster_bootstrap
from taugate.ingestion.chunks import CHUNK_TOKENS, OVERLAP_TOKENS
from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.retrieval.documents.store import Document


@pytest.fixture(scope="module")
def tokenizer(encoder: Path) -> Tokenizer:
    found = Tokenizer.from_file(str(encoder / "tokenizer.json"))
    found.no_padding()
    found.no_truncation()
    return found


def test_a_document_ranks_by_its_best_chunk() -> None:
    rng = np.random.default_rng(3)
    queries = rng.normal(size=(300, 8)).astype(np.float32)
    chunks = rng.integers(-1, 2, size=(60, 8)).astype(np.float32)  # many equal scores
    queries = np.round(queries)
    starts = np.array([0, 1, 5, 6, 20, 21, 22, 40, 41, 42, 43, 44, 59])
    ends = [*starts[1:], len(chunks)]
    found = best_documents(queries, chunks, starts)
    for query, ranked in zip(queries, found, strict=True):
        scores = [max(float(query @ chunk) for chunk in chunks[a:b]) for a, b in zip(starts, ends, strict=True)]
        assert ranked.tolist() == sorted(range(len(starts)), key=lambda place: (-scores[place], place))[:10]


def test_accuracy_looks_at_five_documents_and_ndcg_at_ten() -> None:
    queries = [LabelledQuery("a", "?", {3: 1}), LabelledQuery("b", "?", {4: 2})]
    grades = np.zeros((2, 10), dtype=np.int8)
    grades[0, 4], grades[1, 5] = 1, 2
    assert per_query(queries, grades).tolist() == [
        [1.0, pytest.approx(1 / np.log2(6))],
        [0.0, pytest.approx(1 / np.log2(7))],
    ]


def test_bootstraps_are_those_of_the_product() -> None:
    rng = np.random.default_rng(5)
    values, labels = rng.random((40, 3)), np.repeat(np.arange(10), 4)
    means = bootstrapped_means(values, labels, np.random.default_rng(7), 500)
    for column in range(3):
        product = cluster_bootstrap(values[:, column], labels, np.random.default_rng(7), 500)
        assert np.percentile(means[:, column], [2.5, 97.5]) == pytest.approx([product.lower, product.upper])


def test_articles_are_joined_in_order_and_keep_the_highest_grade() -> None:
    documents = [Document("x_0", "One.", "X"), Document("x_1", "Two.", "X"), Document("y_0", "Three.", "Y")]
    queries = [LabelledQuery("q", "?", {0: 1, 1: 3}), LabelledQuery("r", "?", {2: 1})]
    found = articles(documents, queries, lambda document: document.id[0], " ")
    assert [(each.key, each.title, each.text) for each in found.documents] == [
        ("x", "X", "One. Two."),
        ("y", "Y", "Three."),
    ]
    assert [query.relevant for query in found.queries] == [{0: 3}, {1: 1}]
    with pytest.raises(ValueError, match="side by side"):
        articles([documents[0], documents[2], documents[1]], [], lambda document: document.id[0], " ")


def test_rankings_are_kept(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = "The pump starts when the pressure falls below two bars. " * 12
    documents = articles(
        [Document("a", text), Document("b", "Short.")], [], lambda document: document.id, " "
    ).documents
    study_set = StudySet(documents, [LabelledQuery("q", "pump", {0: 1})])
    calls: list[int] = []

    def load() -> StudyEncoder:
        def embed(texts: list[str], _role: str) -> np.ndarray:
            calls.append(len(texts))
            return np.array([[float("pump" in each), 1.0] for each in texts], dtype=np.float32)

        return StudyEncoder("a test", embed)  # type: ignore[arg-type]  # a stand-in

    texts, starts = chunk_texts(documents, Setting(64), tokenizer)
    assert starts[1] > 1
    assert texts[-1] == "Short."
    for setting, chunks in ((WHOLE, 2), (Setting(64), len(texts))):
        first, again = (Rankings(tmp_path / "kept", load, tokenizer).ranking("s", study_set, setting) for _ in range(2))
        assert first.chunks == again.chunks == chunks
        assert first.grades.tolist() == again.grades.tolist() == [[1, 0]]
    assert calls == [1, 2, 1, len(texts)]  # each was encoded once


@pytest.mark.data
def test_covidqa_has_98_articles_whose_passages_are_all_there(public_data: Path) -> None:
    found = covidqa_articles(public_data)
    assert len(found.documents) == 98
    assert sum(len(document.text.split()) for document in found.documents) > 300_000


def test_the_page_names_the_defaults_of_the_import() -> None:
    text = (ROOT / "docs" / "benchmarks" / "chunks.md").read_text(encoding="utf-8")
    assert f"| **{CHUNK_TOKENS}, overlap {OVERLAP_TOKENS}** |" in text
