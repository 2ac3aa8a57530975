"""Data sets whose queries are ranked by cosine + w · share for several weights w, and by other kinds of hybrid search."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibrated import IndexedSet
from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.calibration.metrics.inputs import clusters, max_own_passages, own_passages_of, ranking_outcomes
from taugate.data.corpus import CORPUS
from taugate.data.generation.generate import MAX_QUERIES, generate_crops
from taugate.data.judgements import GENERATED
from taugate.data.labelled_queries import LabelledQuery
from taugate.data.queries import QUERIES
from taugate.evidence.acceptance import DEPTH, RankingOutcomes
from taugate.evidence.clusters import SamplingUnits
from taugate.policy.arrays import Float32, dense_of
from taugate.retrieval.index.lexical import LexicalIndex, share_of
from taugate.retrieval.index.words import K1, B, query_terms

SETS = (
    *("squad_v2_dev", "scifact", "scifact/train", "cosqa", "covidqa_chunks", "pubmedqa_labelled"),
    *("squadshifts_new_wiki", "squadshifts_reddit", "mixed_large"),
)
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5)
K = 5
LISTS = ("BM25", "RRF", "min-max")
RRF_K = 60  # Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion", SIGIR 2009
DENSE = 0.7  # share of the dense list by min-max
LISTED = 100  # length of the lists that RRF and min-max fuse
_QUERIES = 256  # ranked at once, which limits the scores in memory

Edit = Callable[[str], str]
Ranked = dict[float | str, RankingOutcomes]  # outcomes of the answerable queries by weight, or by name of LISTS


class Scores(NamedTuple):
    """Scores of all N documents for c queries: (c, N) float32 cosines and shares."""

    queries: Sequence[LabelledQuery]
    cosines: Float32
    shares: Float32

    def fused(self, weight: float) -> Float32:
        """Return cosine + w · share in float32."""
        total: Float32 = np.add(self.cosines, self.shares * np.float32(weight), dtype=np.float32)
        return total


@dataclass(frozen=True)
class FusedSet:
    """A data set with its texts.

    Attributes:
        indexed: Documents, queries and vectors.
        texts: (N,) texts of the documents as they are searched.
    """

    indexed: IndexedSet
    texts: list[str]

    @classmethod
    def read(cls, data: Path, name: str) -> Self:
        """Read and encode `name` or `name/split`."""
        folder, _, split = name.partition("/")
        with tempfile.TemporaryDirectory() as spool:
            indexed = IndexedSet.read(data / folder, split or "test", DEFAULT_ENCODER, Path(spool))
            return cls(indexed, [document.encoded_text for document in indexed.dataset.documents])

    @classmethod
    def crops(cls, data: Path, name: str, seed: int) -> Self:
        """Read a set with the queries of `taugate queries --method crop` in place of its own."""
        with tempfile.TemporaryDirectory() as copy:
            (Path(copy) / name / "qrels").mkdir(parents=True)
            for file in (CORPUS, QUERIES):
                shutil.copyfile(data / name / file, Path(copy) / name / file)
            generate_crops(Path(copy) / name, MAX_QUERIES, seed)
            return cls.read(Path(copy), f"{name}/{GENERATED}")

    def scores(self, lexical: LexicalIndex, *, answerable: bool = True, edit: Edit = str) -> Iterator[Scores]:
        """Score all documents for a few queries at a time, whose texts pass through `edit`."""
        data, encoded = self.indexed.dataset, self.indexed.encoded
        queries = data.answerable if answerable else data.unanswerable
        vectors = dense_of(encoded.answerable if answerable else encoded.unanswerable)
        for start in range(0, len(queries), _QUERIES):
            some = queries[start : start + _QUERIES]
            sums = [lexical.term_scores(query_terms(edit(query.text))) for query in some]
            shares = np.stack([share_of(terms.scores, terms.total) for terms in sums])
            yield Scores(some, vectors[start : start + len(some)] @ encoded.documents.T, shares)

    def ranked(self, edit: Edit = str, k1: float = K1, b: float = B) -> Ranked:
        """Measure the answerable queries, with all texts passed through `edit`."""
        lexical = LexicalIndex.of(map(edit, self.texts), k1, b)
        parts: dict[float | str, list[RankingOutcomes]] = {}
        for some in self.scores(lexical, edit=edit):
            depth, parents = (
                DEPTH + max_own_passages(own_passages_of(some.queries)),
                self.indexed.dataset.documents.parents,
            )
            for name, scores in _lists(some):
                outcomes = ranking_outcomes(some.queries, _best(scores, depth), K, parents)
                parts.setdefault(name, []).append(outcomes)
        return {
            name: RankingOutcomes(
                np.concatenate([part.accuracy for part in some]), np.concatenate([part.ndcg for part in some])
            )
            for name, some in parts.items()
        }


@lru_cache(maxsize=1)
def fused_set(data: Path, name: str) -> FusedSet:
    """Read a data set, or return the one that was read last."""
    return FusedSet.read(data, name)


@cache
def ranked_set(data: Path, name: str) -> tuple[Ranked, SamplingUnits]:
    """Measure a set's own queries once for all sections."""
    read = fused_set(data, name)
    return read.ranked(), SamplingUnits.from_clusters(clusters(read.indexed.dataset.answerable))


def _lists(scores: Scores) -> Iterator[tuple[float | str, Float32]]:
    for weight in WEIGHTS:
        yield weight, scores.fused(weight)
    ranks, scaled = np.zeros_like(scores.cosines), np.zeros_like(scores.cosines)
    for part, weight in ((scores.cosines, DENSE), (scores.shares, 1 - DENSE)):
        positions = _best(part, LISTED)
        values = np.take_along_axis(part, positions, axis=1)
        low, high = values[:, -1:], values[:, :1]
        listed = (values > 0) | (part is scores.cosines)  # BM25 lists no document without a word of the query
        by_rank = listed / (RRF_K + np.arange(1, positions.shape[1] + 1))
        for total, added in ((ranks, by_rank), (scaled, weight * (values - low) / np.maximum(high - low, 1e-9))):
            np.put_along_axis(total, positions, np.take_along_axis(total, positions, axis=1) + added, axis=1)
    yield from zip(LISTS, (scores.shares, ranks, scaled), strict=True)


def _best(scores: Float32, count: int) -> NDArray[np.int64]:
    """Return the positions of the `count` highest scores, best first, ties by position; all if there are fewer."""
    count = min(count, scores.shape[1])
    found = np.sort(np.argpartition(-scores, count - 1, axis=1)[:, :count], axis=1)
    return np.take_along_axis(found, np.argsort(-np.take_along_axis(scores, found, 1), axis=1, kind="stable"), 1)
