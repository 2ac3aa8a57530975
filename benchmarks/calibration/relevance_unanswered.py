"""Measure the calibration error of `relevance` if half of the queries are unanswerable, fitted with and without them."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibrated import IndexedSet
from benchmarks.calibration.trials import unseen
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode, encode_near_misses
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.calibration.metrics.clusters import SamplingUnits, clusters
from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.calibration.metrics.reliability import LIKELY, ReliabilitySums, expected_calibration_error
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.progress import Stopwatch
from taugate.calibration.relevance.model import AppliedRelevance, estimate_relevance
from taugate.calibration.relevance.unanswered import Unanswered, UnansweredQuestions, mixture_weights
from taugate.calibration.study.refusing import LabelledSearch
from taugate.calibration.study.unanswered import collect_unanswered
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.vectors.similarity import Float32

HEADING = "Relevance of questions without an answer"
# The share and the strength of the first factor were chosen on cosqa and covidqa_chunks.
SETS = ("squad_v2_dev", "squadshifts_new_wiki", "pubmedqa_labelled", "scifact/train", "cosqa", "covidqa_chunks")
SPLITS, K, OTHER = 10, 5, 1000
KINDS = ("made", "human", "human, half learned")
_LOSSES = (0.02, 0.05)


@dataclass(frozen=True)
class Row:
    """Figures of one split: ECE of all results, of p ≥ .2, of best results, of answerable queries; results kept."""

    mixture: float
    likely: float
    best: float
    answerable: float
    kept: tuple[float, ...]


@dataclass(frozen=True)
class SearchedSet:
    """A data set whose queries and questions have been searched; `other` are questions that no fit uses."""

    indexed: IndexedSet
    judged: JudgedQueries
    units: SamplingUnits
    questions: Unanswered
    other: tuple[TopK, Float32]


def section(experiment: Experiment) -> str:
    """Fit with and without unanswerable questions on a part of each set, and measure on the other part."""
    rows = []
    for name in experiment.wanted(SETS):
        with tempfile.TemporaryDirectory() as spool:
            searched = _search(experiment, name, Path(spool))
            for kind in KINDS if searched.indexed.dataset.unanswerable else KINDS[:1]:
                splits = [_split(searched, kind, number, experiment.seed) for number in range(SPLITS)]
                for label, figures in zip(("before", "now"), zip(*splits, strict=True), strict=True):
                    rows.append(_cells(name, kind, label, figures))
    return f"""\
Half of the questions have no answer. *Made* are, in equal shares, held-out queries without the documents that answer them, near
misses made from held-out queries, off-topic questions that took no part in the fit, and {OTHER:,} questions of ood_queries, to bank
and voice assistants. *Human* are the questions that annotators of SQuAD 2.0 wrote to look answerable; the fit does not use them, or uses one half of
them ("half learned") and is measured on the other, as in a data set with unanswerable queries.
"Before" is fitted on answerable queries alone (`--no-refusal`), "now" with such questions of the calibration part.

The expected calibration error (ECE) is that of all results, of results with a relevance of .2 or more, of the best results, and of all
results of the answerable queries alone: it is the price if every query has an answer. *Kept* is the share of results of answerable queries
that a cut by probability keeps if it loses 2 or 5 % of them. Means over {SPLITS} random splits, K = {K}.

{table(["set", "without an answer", "", "ECE", "ECE of p ≥ .2", "ECE of best results", "ECE, all answerable", "kept at 2 %", "at 5 %"], rows)}
"""


def _search(experiment: Experiment, name: str, spool: Path) -> SearchedSet:
    folder, _, split = name.partition("/")
    indexed = IndexedSet.read(experiment.data / folder, split or "test", DEFAULT_ENCODER, spool)
    dataset, encoded, index = indexed.dataset, indexed.encoded, indexed.index
    judged = JudgedQueries.judge(dataset.answerable, encoded.answerable, index, K, dataset.documents.parents)
    human = index.search(encoded.unanswerable, K)
    model = OnnxEncoder.load(exported_encoder(DEFAULT_ENCODER))
    near_misses = encode_near_misses(dataset, model, None, experiment.seed, Stopwatch())
    units = SamplingUnits.from_clusters(clusters(dataset.answerable))
    every, all_of = np.arange(len(judged)), np.ones(len(judged), dtype=np.bool_)
    found = LabelledSearch(dataset, replace(encoded, near_misses=near_misses), index, judged, human, units)
    questions = collect_unanswered(found, indexed.labels, QueryRoles(every, every, every, every), (all_of, all_of))
    lines = (experiment.data / "ood_queries" / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    drawn = np.random.default_rng([experiment.seed, 5]).choice(len(lines), OTHER, replace=False)
    texts = [json.loads(lines[row])["text"] for row in np.sort(drawn)]
    cache = EmbeddingCache.for_encoder(model.sha256, model.config.dimension)
    other = encode(model, texts, len(texts), "query", cache, Stopwatch()).vectors
    return SearchedSet(indexed, judged, units, questions, (index.search(other, K), other))


def _split(searched: SearchedSet, kind: str, number: int, seed: int) -> tuple[Row, Row]:
    calibration, judges = unseen(np.random.default_rng([seed, number]), searched.units)
    roles = QueryRoles.draw(calibration, searched.units, number)
    encoded, judged = searched.indexed.encoded, searched.judged
    nothing = TopK(judged.top.scores[:0], judged.top.positions[:0]), encoded.answerable[:0]
    off_topic, (*sources, human) = searched.questions.off_topic, searched.questions.close
    close = [_divided(questions, searched.units, calibration) for questions in sources]
    if kind == "made":
        measured = [questions.take(questions.measures) for questions in (*close, off_topic)]
        unanswered = [*((questions.top, questions.vectors) for questions in measured), searched.other]
    else:
        unseen_half = human.take(human.measures)
        unanswered = [(unseen_half.top, unseen_half.vectors)]
    learned = [*close, human] if kind == "human, half learned" else close
    rows = []
    for questions in (None, Unanswered(off_topic, tuple(learned))):
        estimated = estimate_relevance(
            judged, encoded.answerable, nothing, roles, encoded.documents, encoded.lengths, questions
        )
        if estimated is None:
            raise AssertionError("no set here is without relevant results")
        rows.append(_measure(estimated, judged.take(judges), judges, unanswered))
    return rows[0], rows[1]


def _divided(
    questions: UnansweredQuestions, units: SamplingUnits, calibration: NDArray[np.int64]
) -> UnansweredQuestions:
    learns = np.isin(questions.clusters, units.clusters[calibration])
    return replace(questions, learns=learns, measures=~learns)


def _measure(
    estimated: AppliedRelevance,
    judged: JudgedQueries,
    judges: NDArray[np.int64],
    unanswered: list[tuple[TopK, Float32]],
) -> Row:
    relevance, relevant, labelled = estimated.answerable[judges], judged.relevant, judged.labelled
    weights = mixture_weights(len(judges), [len(vectors) for _, vectors in unanswered])
    questions = np.concatenate([estimated.relevance.estimate(vectors, top) for top, vectors in unanswered])
    every = np.concatenate([relevance, questions])
    true = np.concatenate([relevant, np.zeros(questions.shape, dtype=np.bool_)])
    known = np.concatenate([labelled, np.ones(questions.shape, dtype=np.bool_)])
    alone = np.arange(len(every))
    sums = ReliabilitySums.by_cluster(every, true, alone, known, weights)
    best = ReliabilitySums.by_cluster(every[:, :1], true[:, :1], alone, weights=weights)
    answerable = ReliabilitySums.by_cluster(relevance, relevant, alone[: len(judges)], labelled)
    return Row(
        expected_calibration_error(sums),
        expected_calibration_error(sums, LIKELY),
        expected_calibration_error(best),
        expected_calibration_error(answerable),
        tuple(_kept(relevance, relevant)),
    )


def _kept(relevance: Float32, relevant: NDArray[np.bool_]) -> Iterator[float]:
    """The share of results that reach the highest threshold that loses no more than each loss."""
    best = np.where(relevant, relevance, -1.0).max(axis=1)
    hits = np.sort(best[best >= 0])
    for loss in _LOSSES:
        yield float((relevance >= hits[int(loss * len(hits))]).mean())


def _cells(name: str, kind: str, label: str, splits: tuple[Row, ...]) -> list[str]:
    figures = [
        float(np.mean([getattr(row, field) for row in splits])) for field in ("mixture", "likely", "best", "answerable")
    ]
    kept = np.mean([row.kept for row in splits], axis=0)
    return [name, kind, label, *(share(figure) for figure in (*figures, *kept.tolist()))]
