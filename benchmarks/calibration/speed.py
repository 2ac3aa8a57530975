"""Seconds for the threshold and every bootstrap, beside the literal transcription of the papers on the same data."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from benchmarks.experiment import Experiment
from benchmarks.markdown import table, verdict
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.measure import Resamples, measure
from taugate.calibration.metrics.ranking import JudgedQueries, ScoredQueries
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.relevance.model import estimate_relevance
from taugate.calibration.settings.rules import ThresholdRule
from taugate.calibration.settings.settings import DEFAULT_OVERLAP_PERCENTILE, CalibrationSettings
from taugate.calibration.threshold.calibration_queries import CalibrationQueries
from taugate.calibration.threshold.decide import bootstrap_threshold, decide_policy
from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.release.manifest import MetricsRecord
from taugate.retrieval.vectors.similarity import Float32, pair_similarity

# The literal transcription is in no package that is installed.
from tests.oracle import Oracle, transcribe

HEADING = "Speed"
QUERIES, DOCUMENTS, DIMENSION, K = 10_000, 2_000, 384, 20
BOOTSTRAPS, SAMPLE_SIZE = 500, 100
_NOISE = 3.0  # length of what is added to a document's vector to ask for it: a third of the queries misses its top K
_ROUNDS = 5
Result = TypeVar("Result")


@dataclass(frozen=True)
class Synthetic:
    """Queries near a document each, as unit vectors."""

    queries: Float32
    documents: Float32
    correct: list[int]

    @classmethod
    def of(cls, rng: np.random.Generator) -> "Synthetic":
        """Drawn at random: what is timed does not depend on what the vectors mean."""
        documents = _unit(rng.normal(size=(DOCUMENTS, DIMENSION)))
        correct = rng.integers(0, DOCUMENTS, QUERIES)
        queries = _unit(documents[correct] + _NOISE * _unit(rng.normal(size=(QUERIES, DIMENSION))))
        return cls(queries, documents, correct.tolist())


def section(experiment: Experiment) -> str:
    """The section of the page."""
    data = Synthetic.of(np.random.default_rng(experiment.seed))
    settings = CalibrationSettings(k=K, bootstraps=BOOTSTRAPS, sample_size=SAMPLE_SIZE, seed=experiment.seed)
    labels = [LabelledQuery(str(row), "", {document: 1}) for row, document in enumerate(data.correct)]
    index = FlatIndex.build(data.documents)
    judged, searching = _timed(lambda: JudgedQueries.judge(labels, data.queries, index, K), 1)
    nothing = TopK(judged.top.scores[:0], judged.top.positions[:0])
    scored = ScoredQueries(judged, nothing, None, None)
    units = SamplingUnits.from_labels(np.arange(QUERIES))
    draw = Resamples.draw(np.random.default_rng(experiment.seed), units, DOCUMENTS, settings)
    (tau, psi, metrics), papers = _timed(lambda: _papers(scored, data, draw), _ROUNDS)
    certified = ThresholdRule("risk-control", "similarity")
    everything = np.arange(QUERIES)
    evidence = CalibrationQueries(scored, everything, draw.rows, None, None, units, experiment.seed)
    _, certifying = _timed(lambda: decide_policy(certified, evidence), _ROUNDS)
    parts = QueryRoles.draw(everything, units, experiment.seed)
    lengths = np.full(DOCUMENTS, 1000)
    estimated, fitting = _timed(
        lambda: estimate_relevance(judged, data.queries, (nothing, data.queries[:0]), parts, data.documents, lengths), 1
    )
    if estimated is None:
        raise AssertionError("the synthetic data have relevant results")
    chosen = ScoredQueries(judged, nothing, estimated.answerable, estimated.unanswerable)
    evidence = CalibrationQueries(chosen, everything, draw.rows, parts, estimated, units, experiment.seed)
    _, choosing = _timed(lambda: decide_policy(ThresholdRule("risk-control", "auto"), evidence), _ROUNDS)
    oracle, literal = _timed(lambda: _transcribe(data, experiment.seed), 1)
    same = _same(oracle, tau, psi, metrics)
    rows = [
        ["threshold search and all bootstraps of the papers' rule", f"{papers:.3f} s", "< 1 s: " + verdict(reached=papers < 1)],
        ["the literal transcription, same data, same run, all of its bootstraps", f"{literal:.0f} s", ""],
        ["ratio, less the search", f"{literal / papers:,.0f} ×", "≥ 100 ×: " + verdict(reached=literal >= 100 * papers)],
        ["ratio, the exact search of all queries included", f"{literal / (papers + searching):,.0f} ×", ""],
        ["same τ, ψ, accuracy, COE and ROE as the transcription", "yes" if same else "**no**", ""],
        ["exact search of all queries, once", f"{searching:.2f} s", ""],
        ["certified cut, policy similarity (risk control at 95 %)", f"{certifying:.3f} s", ""],
        ["fit of the relevance model, with every result's relevance", f"{fitting:.2f} s", ""],
        ["choice and certified cut, policy auto", f"{choosing:.3f} s", ""],
    ]  # fmt: skip
    return f"""\
m = {BOOTSTRAPS}, l = {SAMPLE_SIZE}, q = {QUERIES:,}, K = {K}; synthetic unit vectors of {DIMENSION} dimensions, {DOCUMENTS:,} documents, one thread. Median of
{_ROUNDS} runs, of one where it takes longer than a second. The transcription (`tests/oracle.py`) searches in each bootstrap,
as the papers describe it; Taugate searches once and then counts how often each query is drawn.

{table(["what", "figure", "target"], rows)}
"""


def _papers(scored: ScoredQueries, data: Synthetic, draw: Resamples) -> tuple[float, int, MetricsRecord]:
    found = bootstrap_threshold(scored.judged, draw.rows)
    random_scores = pair_similarity(data.queries, data.documents, draw.random_documents[:, None])[:, 0]
    tau = np.float32(found.tau)
    return found.tau, found.psi, measure(scored, random_scores, draw, "similarity", tau, DEFAULT_OVERLAP_PERCENTILE)


def _transcribe(data: Synthetic, seed: int) -> Oracle:
    correct = [[document] for document in data.correct]
    found: Oracle = transcribe(data.queries, data.documents, correct, k=K, m=BOOTSTRAPS, l=SAMPLE_SIZE, seed=seed)
    return found


def _same(oracle: Oracle, tau: float, psi: int, metrics: MetricsRecord) -> bool:
    theirs: list[float] = [
        oracle.tau,
        oracle.psi,
        *(float(np.mean(each)) for each in (oracle.accuracy, oracle.coe, oracle.roe)),
    ]
    ours = [tau, psi, metrics.accuracy.mean, metrics.coe.mean, metrics.roe.mean]
    return bool(np.allclose([*theirs, oracle.accuracy_at[psi]], [*ours, metrics.accuracy_at_tau.mean], atol=1e-9))


def _timed(work: Callable[[], Result], rounds: int) -> tuple[Result, float]:
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - began)
    return result, statistics.median(seconds)


def _unit(vectors: np.ndarray) -> Float32:
    scaled: Float32 = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return scaled
