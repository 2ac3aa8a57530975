"""Readers of a release's safetensors files."""

import functools
from pathlib import Path
from typing import get_args

import numpy as np

from taugate.calibration.comparison.decision import mean_difference
from taugate.calibration.comparison.rule import QUANTITIES, QuantitySample
from taugate.calibration.export.bert import Bert, BertLayer, Product
from taugate.drift.observations import calibration_observations
from taugate.policy.abstention import MODEL_SIGNALS, AnswerScore
from taugate.policy.names import PolicyKind
from taugate.policy.relevance import FEATURES, Background, Logistic, OnTopic, Relevance
from taugate.release.encoder import LAYOUT, MODEL, WEIGHTS
from taugate.release.layout import ABSTENTION, LEXICAL, METADATA, OUTCOMES, REFERENCE, RELEVANCE
from taugate.release.queries import Outcomes, Reference, threshold_curve
from taugate.retrieval.documents.filters import OneOf, Range
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import Document, DocumentStore
from taugate.retrieval.encoder.bert import LINEARS, BertModel, GraphWeights, processor_path
from taugate.retrieval.index.lexical import LexicalIndex, word_reader
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.index.words import query_terms
from taugate.retrieval.vectors import Projection
from taugate.storage.tensors import write_tensors
from tests.compatibility.write import FOLDER
from tests.document_words import all_signals
from tests.fuzz.reader import TENSOR_WORDS, Reader, of_file

K = 5  # of the release
DOCUMENTS = 20  # of the relevance model
BEFORE, AFTER = 6, 3  # dimensions of the projection
TEXTS = [f"term{row} and" for row in range(DOCUMENTS)]
STORED = [Document(str(row), text) for row, text in enumerate(TEXTS)]
EARLIER_WORDS = next((FOLDER / "releases" / "schema-2-words").glob("*-*"))  # 48 documents, 32 dimensions


def array_readers(release: Path, documents: DocumentStore, scratch: Path) -> list[Reader]:
    """Return the readers; the metadata are those of `documents`, and `scratch` is a folder to write in."""
    weights = Reader("weights", of_file(scratch / WEIGHTS, _weights), (_some_weights(scratch),), words=TENSOR_WORDS)
    layout = Reader("kernel-layout", of_file(scratch / LAYOUT, _layout), (_some_layout(scratch),))
    return [
        *([weights] if processor_path("int8") else []),
        *([layout] if processor_path("float32") else []),
        Reader(
            "projection", of_file(scratch / "projection", _projection), (_a_projection(scratch),), words=TENSOR_WORDS
        ),
        Reader(
            "reference", of_file(scratch / REFERENCE, _reference), (_a_reference(release, scratch),), words=TENSOR_WORDS
        ),
        Reader(
            "outcomes", of_file(scratch / OUTCOMES, _outcomes), (_some_outcomes(release, scratch),), words=TENSOR_WORDS
        ),
        Reader("relevance", of_file(scratch / RELEVANCE, _relevance), (_a_relevance(scratch),), words=TENSOR_WORDS),
        Reader(
            "abstention", of_file(scratch / ABSTENTION, _abstention), (_an_abstention(scratch),), words=TENSOR_WORDS
        ),
        Reader("lexical", of_file(scratch / LEXICAL, _lexical), (_some_words(scratch),), words=TENSOR_WORDS),
        Reader(
            "words-by-sentence",
            of_file(scratch / ABSTENTION, _words_by_sentence),
            ((EARLIER_WORDS / ABSTENTION).read_bytes(),),
            words=TENSOR_WORDS,
        ),
        Reader(
            "metadata",
            of_file(scratch / METADATA, lambda path: _metadata(path, documents)),
            (_some_metadata(documents, scratch),),
            words=TENSOR_WORDS,
        ),
    ]


def _some_weights(scratch: Path) -> bytes:
    """Write a model of one layer, 64 dimensions, 8 words and 8 positions."""
    rng = np.random.default_rng(0)

    def product(outputs: int) -> Product:
        return Product(*(rng.normal(size=shape).astype(np.float32) for shape in ((outputs, 64), (outputs,))))

    words, positions, types, norm = (rng.normal(size=(rows, 64)).astype(np.float32) for rows in (8, 8, 2, 2))
    products: dict[str, Product] = dict(
        zip(LINEARS, (product(192), product(64), product(64), product(64)), strict=True)
    )
    model = Bert(words, positions, types, norm, (BertLayer(products, norm, norm),), heads=2, epsilon=1e-12, pooling=0)
    write_tensors(scratch / WEIGHTS, model.in_int8([[1, 2, 3]]))
    return (scratch / WEIGHTS).read_bytes()


def _weights(path: Path) -> None:
    vectors = BertModel(path, "int8", 1, "plain").run([[1, 2, 3], [4]])
    assert vectors.shape == (2, 64)


def _some_layout(scratch: Path) -> bytes:
    """Describe a model of the same size in a file of numbers, which stands for a graph."""
    shapes = {"words": (8, 64), "positions": (8, 64), "token_types": (2, 64)}
    shapes |= {f"0.{name}.weight": (64, 64) for name in ("query", "key", "value", "out", "up", "down")}
    shapes |= {f"0.{name}.bias": (64,) for name in ("query", "key", "value", "out", "up", "down")}
    shapes |= {f"{name}.{part}": (64,) for name in ("norm", "0.norm1", "0.norm2") for part in ("weight", "bias")}
    numbers = np.random.default_rng(0).normal(size=64 * 64 + 64).astype(np.float32)
    (scratch / MODEL).write_bytes(numbers.tobytes())
    tensors = {name: (4 * place, *shape) for place, (name, shape) in enumerate(shapes.items())}
    layout = GraphWeights(heads=2, first_token=False, first_position=0, epsilon=1e-12, tensors=tensors)
    return layout.model_dump_json().encode()


def _layout(path: Path) -> None:
    assert len(BertModel(path, "float32", 1).run([[0]])) == 1


def _a_projection(scratch: Path) -> bytes:
    rng = np.random.default_rng(0)
    Projection(rng.normal(size=BEFORE), rng.normal(size=(BEFORE, AFTER))).save(scratch / "projection")
    return (scratch / "projection").read_bytes()


def _projection(path: Path) -> None:
    with np.errstate(all="ignore"):  # sums may overflow: golden queries detect that
        Projection.load(path, BEFORE, AFTER).apply(np.eye(BEFORE, dtype=np.float32))


def _a_reference(release: Path, scratch: Path) -> bytes:
    whole = Reference.load(release / REFERENCE)
    parts = {name: getattr(whole, name)[:4] for name in ("top", "correct", "random", "kept", "correct_kept")}
    relevance = np.linspace(0.1, 0.9, parts["top"].size, dtype=np.float32).reshape(parts["top"].shape)
    optional = {"relevance": relevance, "correct_relevance": relevance[:, 0], "components": parts["top"][:, :2]}
    Reference(**parts, **optional).save(scratch / REFERENCE)
    return (scratch / REFERENCE).read_bytes()


def _reference(path: Path) -> None:
    read = Reference.load(path)
    assert len(calibration_observations(read))
    for kind in get_args(PolicyKind):
        points = [[*point.model_dump().values()] for point in threshold_curve(read, kind, 0.5)]
        assert np.isfinite(points).all()


def _some_outcomes(release: Path, scratch: Path) -> bytes:
    whole = Outcomes.load(release / OUTCOMES, K)
    parts = {name: getattr(whole, name)[:4] for name in Outcomes.__dataclass_fields__}
    Outcomes(**parts).save(scratch / OUTCOMES)
    return (scratch / OUTCOMES).read_bytes()


def _outcomes(path: Path) -> None:
    found = Outcomes.load(path, K)
    for reading in QUANTITIES.values():
        sample = reading(found, K)
        assert _upper_limit(sample.values.tobytes(), sample.clusters.tobytes()) >= 0


@functools.cache
def _upper_limit(values: bytes, clusters: bytes) -> float:
    """Compare a sample with itself, once: most mutations of a file leave these arrays as they are."""
    own, groups = np.frombuffer(values, np.float64), np.frombuffer(clusters, np.int64)
    sample = QuantitySample(own, np.arange(len(own), dtype=np.uint64), groups)
    return mean_difference(sample, sample, 0.95).upper


def _a_relevance(scratch: Path) -> bytes:

    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(DOCUMENTS, AFTER)).astype(np.float32)
    background = Background.of(vectors, vectors, np.arange(1, DOCUMENTS + 1))
    center, scale, weights = (rng.uniform(0.5, 1, size=len(FEATURES)) for _ in range(3))
    model = Logistic(center, scale, weights, 0.1, on_topic=OnTopic(0.1, 1.0, 0.5))
    Relevance(model, background, 5).save(scratch / RELEVANCE)
    return (scratch / RELEVANCE).read_bytes()


def _relevance(path: Path) -> None:
    model = Relevance.load(path, AFTER, DOCUMENTS)
    scores = np.array([[0.9, 0.5, 0.1]], dtype=np.float32)
    with np.errstate(all="ignore"):
        model.estimate(np.ones((1, AFTER), dtype=np.float32), TopK(scores, np.array([[0, 1, DOCUMENTS - 1]])))


def _an_abstention(scratch: Path) -> bytes:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(DOCUMENTS, AFTER)).astype(np.float32)
    signals = all_signals(K, vectors, TEXTS)
    center, scale, weights = (rng.uniform(0.5, 1, size=len(MODEL_SIGNALS)) for _ in range(3))
    AnswerScore("model", signals, Logistic(center, scale, weights, 0.1)).save(scratch / ABSTENTION)
    return (scratch / ABSTENTION).read_bytes()


def _abstention(path: Path) -> None:
    score = AnswerScore.load(path, "model", AFTER, word_reader(STORED, LexicalIndex.of(TEXTS)))
    scores = np.array([[0.9, 0.5, 0.1]], dtype=np.float32)
    with np.errstate(all="ignore"):
        found = TopK(scores, np.array([[0, 1, DOCUMENTS - 1]]))
        score.of(["term0 and"], np.ones((1, AFTER), dtype=np.float32), found)


def _some_words(scratch: Path) -> bytes:
    LexicalIndex.of([f"term{row} and" for row in range(DOCUMENTS)]).save(scratch / LEXICAL)
    return (scratch / LEXICAL).read_bytes()


def _lexical(path: Path) -> None:
    index, query = LexicalIndex.load(path, DOCUMENTS), query_terms("term0 and unseen")
    shares = index.shares(query, np.arange(DOCUMENTS))
    assert ((shares >= 0) & (shares <= 1)).all()
    assert (index.reaching(query, 0.0).positions < DOCUMENTS).all()
    assert index.subset(np.arange(5)).is_valid(5)


def _words_by_sentence(path: Path) -> None:
    """Read a score of a release from before scores had a lexical part, which has the words in its own file."""
    score = AnswerScore.load(path, "model", 32, word_reader(STORED[:1] * 48))
    scores = np.array([[0.9, 0.5, 0.1]], dtype=np.float32)
    with np.errstate(all="ignore"):
        score.of(["the tram of Graz"], np.ones((1, 32), dtype=np.float32), TopK(scores, np.array([[0, 1, 47]])))


def _some_metadata(documents: DocumentStore, scratch: Path) -> bytes:
    Metadata.of(documents).save(scratch / METADATA)
    return (scratch / METADATA).read_bytes()


def _metadata(path: Path, documents: DocumentStore) -> None:

    metadata = Metadata.load(path, documents)
    for name in metadata.columns:
        for query_filter in (OneOf.of(name, "bygglov", 1, True), Range(name, gt=0, lte=9)):
            assert metadata.where((query_filter,)).shape == (len(documents),)
