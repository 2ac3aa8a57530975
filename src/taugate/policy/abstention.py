"""Abstention: one score refuses queries whose answer is probably not in the corpus, before results are cut.

The nearest document may be as near for an unanswerable question as for an answerable one. Other signals separate them:
how far the best result stands out from the other results and from random documents, and how many of the query's words
are in the results. Calibration chooses the score and, if it is a model, fits it (docs/thresholds.md, "Answering with
nothing").
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, Self, get_args

import numpy as np
from numpy.typing import NDArray

from taugate.errors import ReleaseError
from taugate.policy.arrays import Float32, Float64, QueryVectors, Ranking, dense_of
from taugate.policy.policy import Mask
from taugate.policy.relevance import Logistic, similarity_moments
from taugate.policy.score_relevance import NO_COMPONENTS, Components, component_signal_names, component_signals
from taugate.storage.tensors import Arrays, read_tensors, write_tensors

# From the simplest to the most complex: the best similarity; its distance above the mean of the other results; its
# distance above the query's similarity with random documents, in standard deviations; BM25 of the best match; and
# logistic models, of four signals, and of the component scores of a fused list.
ScoreName = Literal["best_similarity", "margin", "z", "lexical", "model", "components"]
# best_idf and sentence_idf are the largest shares of the query's idf found in one result and in one sentence. On unseen
# documents, no further signal improves the model, and removing any of these but z makes it worse. z helps only if a
# corpus covers many subjects, but then it helps a lot (benchmarks/decisions.md).
MODEL_SIGNALS = ("best_similarity", "z", "best_idf", "sentence_idf")
SIGNALS = ("best_similarity", "margin", "z", "lexical", "best_idf", "sentence_idf")
# Signals that need the moments of the documents, and signals that need their words.
_BACKGROUND, _LEXICAL = frozenset({"z"}), frozenset({"lexical", "best_idf", "sentence_idf"})
# Arrays of the model and the moments in a score's file.
_MODEL = ("center", "scale", "weights", "intercept")
_MODELS = frozenset({"model", "components"})
_MOMENTS = ("mean", "covariance")


class WordMatch(NamedTuple):
    """The match of a query's words with w documents, as shares, 0…1, of the largest possible match."""

    bm25: Float64  # (w,) BM25 of the documents
    idf: Float64  # (w,) idf of the query's words that the document has
    best_sentence: float  # largest idf of the query's words in one sentence of a document


class Words(Protocol):
    """The words of N documents."""

    def match(self, text: str, positions: NDArray[np.int64], *, sentences: bool = True) -> WordMatch:
        """Compare a query with the documents at some positions; without `sentences`, the best sentence is 0."""
        ...


# Given the arrays of a score's file, from which it takes those of words, returns the words; None if there are none.
ReadWords = Callable[[Arrays], Words | None]


@dataclass(frozen=True)
class Signals:
    """Computes the signals of a score from a query's first k results."""

    k: int  # number of results that the signals are computed from
    # mean (d,) and covariance (d, d) of the document vectors, float64; None if the score does not need them
    moments: tuple[Float64, Float64] | None = None
    words: Words | None = None  # words of the documents; None if the score does not need them
    # for each component of a fused list, the score of a result if no result of the query has one, in the order of the
    # signals; empty if the score does not need them
    floors: Mapping[str, float] = field(default_factory=dict)

    def needed(self, name: ScoreName) -> Self:
        """Return a copy with only the parts that one score needs."""
        moments = self.moments if _BACKGROUND.intersection(signals_of(name)) else None
        words, floors = self.words if needs_words(name) else None, self.floors if name == "components" else {}
        return type(self)(self.k, moments, words, floors)

    def values(
        self,
        names: Sequence[str],
        texts: Sequence[str],
        vectors: QueryVectors,
        top: Ranking,
        components: Components = NO_COMPONENTS,
    ) -> Float64:
        """Compute signals, (n, len(names)) float64, of n queries with at least one result.

        Args:
            top: Results of the queries, w ≥ 1 each; only the first k are used, or all if there are fewer.
        """
        head = top.scores[:, : self.k].astype(np.float64)
        best, remaining = head[:, 0], head[:, 1:]
        signals = {"best_similarity": best}
        if "margin" in names:
            signals["margin"] = best - remaining.mean(axis=1) if remaining.shape[1] else np.zeros(len(head))
        if self.moments is not None:
            mean, deviation = similarity_moments(dense_of(vectors), *self.moments)
            signals["z"] = (best - mean) / deviation
        if self.words is not None:
            rows, sentences = zip(texts, top.positions[:, : self.k], strict=True), "sentence_idf" in names
            matches = [self.words.match(text, positions, sentences=sentences) for text, positions in rows]
            signals["lexical"] = np.array([match.bm25.max() for match in matches])
            signals["best_idf"] = np.array([match.idf.max() for match in matches])
            signals["sentence_idf"] = np.array([match.best_sentence for match in matches])
        if self.floors:
            signals |= component_signals(head, components, self.floors)
        return np.stack([signals[name] for name in names], axis=1)


@dataclass(frozen=True)
class AnswerScore:
    """A score of a query: the higher, the more likely the corpus has an answer."""

    name: ScoreName
    signals: Signals
    model: Logistic | None = None  # model whose log-odds are the score `model` or `components`; None for other scores

    def of(
        self, texts: Sequence[str], vectors: QueryVectors, top: Ranking, components: Components = NO_COMPONENTS
    ) -> Float32:
        """Compute the scores of n queries, (n,) float32; −∞ for all if a filter leaves no document.

        Computed in float64 and rounded once, so batching changes a score about as rarely as a `similarity`.
        """
        if not top.scores.size:
            return np.full(len(texts), -np.inf, dtype=np.float32)
        names = signals_of(self.name, self.signals.floors)
        return self.from_values(self.signals.values(names, texts, vectors, top, components))

    def from_values(self, values: Float64) -> Float32:
        """Compute scores, (n,) float32, from signals, (n, s) float64 in the order of `signals_of`."""
        score: Float32 = (values[:, 0] if self.model is None else self.model.log_odds(values)).astype(np.float32)
        return score

    @property
    def is_best_result(self) -> bool:
        """Whether it is the score of the best result alone, which cannot rise if other documents are removed."""
        return self.name == "best_similarity"

    def save(self, path: Path) -> None:
        """Write the score to one safetensors file, without the words, which are in a file of their own."""
        signals, arrays = self.signals, {"k": np.array([self.signals.k])}
        if signals.moments is not None:
            arrays |= dict(zip(_MOMENTS, signals.moments, strict=True))
        if self.model is not None:
            arrays |= {name: np.atleast_1d(getattr(self.model, name)) for name in _MODEL}
        if signals.floors:
            arrays["floors"] = np.array([*signals.floors.values()], dtype=np.float64)
        write_tensors(path, arrays)

    @classmethod
    def load(
        cls, path: Path, name: str, dimension: int, read_words: ReadWords | None = None, components: Sequence[str] = ()
    ) -> Self:
        """Read the file that `save` wrote."""
        score_name = next((valid for valid in get_args(ScoreName) if valid == name), None)
        arrays = read_tensors(path)
        words = read_words(arrays) if score_name and read_words and needs_words(score_name) else None
        shapes = {} if score_name is None else _shapes(score_name, dimension, components)
        if score_name is None or {*arrays} != {*shapes} or not _has_valid_arrays(arrays, shapes):
            raise ReleaseError(f"{path}: does not hold the score {name[:40]!r} of this index; calibrate again")
        if needs_words(score_name) and words is None:
            raise ReleaseError(f"{path}: does not hold the words of these documents; calibrate again")
        moments = (arrays["mean"], arrays["covariance"]) if "mean" in arrays else None
        model = None
        if "weights" in arrays:
            center, scale, weights, intercept = (arrays[part] for part in _MODEL)
            model = Logistic(center, scale, weights, float(intercept[0]))
        floors = dict(zip(components, arrays["floors"].tolist(), strict=True)) if "floors" in arrays else {}
        return cls(score_name, Signals(int(arrays["k"][0]), moments, words, floors), model)


class RefusalScore(NamedTuple):
    """The score of a query as a whole, and the threshold below which a query is refused; both are float32 values."""

    score: float
    rho: float

    @property
    def answered(self) -> bool:
        """True if the query is answered."""
        return self.score >= self.rho


@dataclass(frozen=True)
class AnswerRule:
    """The rule that answers a query if its score reaches τ in float32, and refuses it otherwise."""

    score: AnswerScore
    tau: float  # the threshold τ of the score
    # whether the rule also holds for a search within a filter, which it does if the score depends on the searched
    # documents alone and any certificate includes what it refuses there
    within_filters: bool = False

    def answered(self, texts: Sequence[str], vectors: QueryVectors, top: Ranking) -> Mask:
        """Return which of n queries are answered, (n,) bool; see `AnswerScore.of` for the parameters."""
        answered: Mask = self.score.of(texts, vectors, top) >= np.float32(self.tau)
        return answered

    def decide(
        self, texts: Sequence[str], vectors: QueryVectors, top: Ranking, components: Components = NO_COMPONENTS
    ) -> list[RefusalScore]:
        """Return the score of each of n queries with the threshold; see `AnswerScore.of` for the parameters."""
        rho = float(np.float32(self.tau))
        return [RefusalScore(score, rho) for score in self.score.of(texts, vectors, top, components).tolist()]


def signals_of(name: str, components: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of a score's signals, given the names of the component scores."""
    if name == "components":
        return component_signal_names(components)
    return MODEL_SIGNALS if name == "model" else (name,)


def needs_words(name: str) -> bool:
    """Return whether a score needs the words of the documents."""
    return bool(_LEXICAL.intersection(signals_of(name)))


def _shapes(name: ScoreName, dimension: int, components: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays in a score's file, by name."""
    signals = signals_of(name, components)
    shapes: dict[str, tuple[int, ...]] = {"k": (1,)}
    if _BACKGROUND.intersection(signals):
        shapes |= {"mean": (dimension,), "covariance": (dimension, dimension)}
    if name in _MODELS:
        shapes |= dict.fromkeys(_MODEL, (len(signals),)) | {"intercept": (1,)}
    if name == "components":
        shapes["floors"] = (len(components),)
    return shapes


def _has_valid_arrays(arrays: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether shapes and types are those of `save`, numbers are finite, and k and scales are positive."""
    for name, array in arrays.items():
        dtype = np.int64 if name == "k" else np.float64
        if array.shape != shapes[name] or array.dtype != dtype or not np.isfinite(array).all():
            return False
    return bool(arrays["k"][0] >= 1 and ("scale" not in arrays or (arrays["scale"] > 0).all()))
