"""Abstention: a query whose answer is probably not in the corpus is refused, by one score, before anything is cut.

The nearest document of a question that nothing answers may be as near as that of one with an answer. Other signals tell
the two apart: how far the best result stands out from the others, and from any document, and how many of the query's
words are in the results. The score is chosen at calibration, and fitted there where it is a model (docs/thresholds.md,
"Answering with nothing").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, get_args

import numpy as np

from taugate.errors import ReleaseError
from taugate.retrieval.index.lexical import ForwardIndex
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.background import Float64, mean_and_covariance, similarity_moments
from taugate.retrieval.policy.policy import Mask
from taugate.retrieval.policy.relevance import Logistic
from taugate.retrieval.vectors.similarity import CorpusVectors, Float32
from taugate.storage.tensors import Arrays, read_tensors, write_tensors

# From the simplest to the one with most parts: the best similarity; how far it is above the mean of the others; how far
# above the query's similarity with random documents, in standard deviations; BM25 of the result that matches best; and
# a logistic model on four signals.
ScoreName = Literal["best_similarity", "margin", "z", "lexical", "model"]
# Two are shares of the query's idf: what the words of one result have, at most, and what those of one sentence have.
# With one of the other signals as well the model is no better on documents that it has not seen, and without one of
# these it is worse, but for z: that is no help where a corpus is of one field, and a great one where it is of many
# (docs/benchmarks/abstention.md).
MODEL_SIGNALS = ("best_similarity", "z", "best_idf", "sentence_idf")
SIGNALS = ("best_similarity", "margin", "z", "lexical", "best_idf", "sentence_idf")
_BACKGROUND, _LEXICAL = frozenset({"z"}), frozenset({"lexical", "best_idf", "sentence_idf"})
_MODEL = ("center", "scale", "weights", "intercept")
_FORWARD = ("vocabulary", "frequencies", "documents", "offsets", "codes", "counts")
_MOMENTS = ("mean", "covariance")


@dataclass(frozen=True)
class Signals:
    """Computes the signals that a score is made of, from a query's first k results.

    Attributes:
        k: How many results count.
        moments: Mean (d,) and covariance (d, d) of the document vectors, float64.
        lexical: The documents' terms. Either is None where the score does not need it.
    """

    k: int
    moments: tuple[Float64, Float64] | None = None
    lexical: ForwardIndex | None = None

    @classmethod
    def of(cls, k: int, documents: CorpusVectors, texts: Sequence[str]) -> Self:
        """Prepare all signals of a corpus.

        Args:
            k: How many results count.
            documents: (N, d) float32 vectors.
            texts: Of the N documents.
        """
        return cls(k, mean_and_covariance(documents), ForwardIndex.of(texts))

    def needed(self, name: ScoreName) -> Self:
        """Return the same with what one score needs, and nothing else."""
        names = {*signals_of(name)}
        moments, lexical = self.moments if _BACKGROUND & names else None, self.lexical if _LEXICAL & names else None
        return type(self)(self.k, moments, lexical)

    def values(self, names: Sequence[str], texts: Sequence[str], vectors: Float32, top: TopK) -> Float64:
        """Compute signals, (n, len(names)) float64, of n queries with at least one result each.

        Args:
            names: Of the signals, among SIGNALS.
            texts: Of the queries.
            vectors: (n, d) float32.
            top: Their w ≥ 1 results, best first, of which the first k count, or all where a filter has left fewer.
        """
        head = top.scores[:, : self.k].astype(np.float64)
        best, others = head[:, 0], head[:, 1:]
        margin = best - others.mean(axis=1) if others.shape[1] else np.zeros(len(head))
        found = {"best_similarity": best, "margin": margin}
        if self.moments is not None:
            mean, deviation = similarity_moments(vectors, *self.moments)
            found["z"] = (best - mean) / deviation
        if self.lexical is not None:
            rows = zip(texts, top.positions[:, : self.k], strict=True)
            matches = [self.lexical.match(text, positions) for text, positions in rows]
            found["lexical"] = np.array([each.bm25.max() for each in matches])
            found["best_idf"] = np.array([each.idf.max() for each in matches])
            found["sentence_idf"] = np.array([each.sentence for each in matches])
        return np.column_stack([found[name] for name in names])


@dataclass(frozen=True)
class AnswerScore:
    """A score of a query, higher where an answer in the corpus is more likely.

    Attributes:
        name: Which score it is.
        signals: Computes what it is made of.
        model: Of MODEL_SIGNALS, whose log-odds are the score called `model`; None for any other.
    """

    name: ScoreName
    signals: Signals
    model: Logistic | None = None

    def of(self, texts: Sequence[str], vectors: Float32, top: TopK) -> Float32:
        """Compute the scores of n queries, (n,) float32; −∞ for all of them where a filter leaves no document.

        Computed in float64 and rounded once, so that how queries were batched shows about as rarely as in `similarity`.

        Args:
            texts: Of the queries.
            vectors: (n, d) float32.
            top: n rows of results, best first.
        """
        if not top.scores.size:
            return np.full(len(texts), -np.inf, dtype=np.float32)
        return self.from_values(self.signals.values(signals_of(self.name), texts, vectors, top))

    def from_values(self, values: Float64) -> Float32:
        """Compute scores, (n,) float32, from signals, (n, s) float64 in the order of `signals_of`."""
        score: Float32 = (values[:, 0] if self.model is None else self.model.log_odds(values)).astype(np.float32)
        return score

    def save(self, path: Path) -> None:
        """Write the score to one safetensors file.

        Raises:
            OSError: .
        """
        signals, arrays = self.signals, {"k": np.array([self.signals.k])}
        if signals.moments is not None:
            arrays |= dict(zip(_MOMENTS, signals.moments, strict=True))
        if signals.lexical is not None:
            arrays |= {name: getattr(signals.lexical, name) for name in _FORWARD}
        if self.model is not None:
            arrays |= {name: np.atleast_1d(getattr(self.model, name)) for name in _MODEL}
        write_tensors(path, arrays)

    @classmethod
    def load(cls, path: Path, name: str, dimension: int, documents: int) -> Self:
        """Read what `save` wrote.

        Args:
            path: The file.
            name: Of the score.
            dimension: Of the vectors that are searched.
            documents: How many the index has.

        Raises:
            ReleaseError: Where it holds anything else.
        """
        known = next((each for each in get_args(ScoreName) if each == name), None)
        arrays = read_tensors(path)
        if known is None or {*arrays} != _array_names(known) or not _has_valid_arrays(arrays, dimension):
            raise ReleaseError(f"{path}: does not hold the score {name[:40]!r} of this index; calibrate again")
        forward = ForwardIndex(*(arrays[each] for each in _FORWARD)) if "codes" in arrays else None
        if forward is not None and not forward.is_valid(documents):
            raise ReleaseError(f"{path}: does not hold the terms of these documents; calibrate again")
        moments = (arrays["mean"], arrays["covariance"]) if "mean" in arrays else None
        model = None
        if "weights" in arrays:
            center, scale, weights, intercept = (arrays[each] for each in _MODEL)
            model = Logistic(center, scale, weights, float(intercept[0]))
        return cls(known, Signals(int(arrays["k"][0]), moments, forward), model)


@dataclass(frozen=True)
class AnswerRule:
    """The rule by which a query is answered, where its score reaches τ in float32, or refused.

    Attributes:
        score: Of the query.
        tau: τ.
    """

    score: AnswerScore
    tau: float

    def answered(self, texts: Sequence[str], vectors: Float32, top: TopK) -> Mask:
        """Return which of n queries are answered, (n,) bool; the parameters are those of `AnswerScore.of`."""
        answered: Mask = self.score.of(texts, vectors, top) >= np.float32(self.tau)
        return answered


def signals_of(name: ScoreName) -> tuple[str, ...]:
    """Return the names of the signals that a score is made of."""
    return MODEL_SIGNALS if name == "model" else (name,)


def _array_names(name: ScoreName) -> set[str]:
    """Return the names of the arrays that a score is stored as."""
    signals, arrays = {*signals_of(name)}, {"k"}
    if _BACKGROUND & signals:
        arrays |= {*_MOMENTS}
    if _LEXICAL & signals:
        arrays |= {*_FORWARD}
    return arrays | ({*_MODEL} if name == "model" else set())


def _has_valid_arrays(arrays: Arrays, dimension: int) -> bool:
    """Tell whether shapes and types are those written, numbers finite, and K positive; terms are checked elsewhere."""
    shapes: dict[str, tuple[int, ...]] = {"k": (1,), "mean": (dimension,), "covariance": (dimension, dimension)}
    shapes |= dict.fromkeys(("center", "scale", "weights"), (len(MODEL_SIGNALS),)) | {"intercept": (1,)}
    for name in {*arrays} - {*_FORWARD}:
        array, dtype = arrays[name], np.int64 if name == "k" else np.float64
        if array.shape != shapes[name] or array.dtype != dtype or not np.isfinite(array).all():
            return False
    return bool(arrays["k"][0] >= 1 and ("scale" not in arrays or (arrays["scale"] > 0).all()))
