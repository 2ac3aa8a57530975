"""The encoded data sets of a run, and the thresholds paper's measures of one of them with one seed."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from benchmarks.encoding import is_encoded
from benchmarks.papers.encoders import PaperEncoder, encoders
from benchmarks.searched import EncodedSplit
from taugate.calibration.metrics.embeddings import TRANSFORMATIONS, isotropy
from taugate.calibration.metrics.inputs import judge_queries
from taugate.calibration.settings import DEFAULT_OVERLAP_PERCENTILE, CalibrationSettings
from taugate.drift.signals import overlap_thresholds, share_above
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.measure import Resamples, measure
from taugate.evidence.ranking import JudgedQueries, ScoredQueries
from taugate.evidence.threshold.decide import bootstrap_threshold
from taugate.policy.arrays import Float32, dense_of
from taugate.release.evidence import Interval
from taugate.release.outcome_records import MetricsRecord
from taugate.retrieval.index.flat import FlatIndex

K = 5
SETS = ("pubmedqa_labelled", "scifact", "covidqa_chunks", "cosqa", "squad_v2_dev")
BASELINE = "baseline"
VARIANTS = (BASELINE, *TRANSFORMATIONS)  # columns of the paper's Table 7


@dataclass(frozen=True)
class Plan:
    """What a run measures.

    Attributes:
        data: Folder with the public data sets.
        seeds: Number of seeds, 0 and up.
        mpnet: Whether texts that mpnet has not encoded yet are encoded, which takes an hour of a core.
    """

    data: Path
    seeds: int
    mpnet: bool

    def pairs(self, sets: Sequence[str] = SETS) -> Iterator[tuple[str, PaperEncoder, bool]]:
        """Yield each data set with each encoder that is measured on it, and whether it can be now."""
        for name in sets:
            for encoder in encoders():
                if encoder.measures(name):
                    yield name, encoder, self._at_hand(name, encoder)

    def encoded(self, name: str, encoder: PaperEncoder) -> EncodedSplit:
        """Encode a data set with its split test, through the project's own cache."""
        return _encoded(self.data, name, str(encoder.source))

    def measured(self, name: str, encoder: PaperEncoder, variant: str = BASELINE) -> "list[Measured]":
        """Measure a data set with every seed."""
        return [_measured(self.data, name, str(encoder.source), variant, seed) for seed in range(self.seeds)]

    def overlaps(self, name: str, encoder: PaperEncoder, percentile: float) -> list[tuple[float, ...]]:
        """Return COE and ROE, each with the width of its interval, for a percentile of S_topK; by seed."""
        return [_overlap(self.data, name, str(encoder.source), percentile, seed) for seed in range(self.seeds)]

    def readings(self, name: str, encoder: PaperEncoder) -> Iterator[tuple[str, list[str]]]:
        """Yield what V may be, with I_A by eq. 5, I_A by eq. 3 over the eigenvectors of VᵀV, and I_B."""
        _, documents, vectors = _judged(self.data, name, str(encoder.source), BASELINE)
        for what, v in (
            ("documents", documents),
            ("questions", vectors),
            ("documents and questions", np.concatenate([documents, vectors])),
        ):
            record = isotropy(v)
            z = np.exp(v @ np.linalg.eigh(v.T.astype(np.float64) @ v)[1]).sum(axis=0)
            yield what, [f"{100 * share:.1f}" for share in (record.i_a, z.min() / z.max(), record.i_b)]

    def _at_hand(self, name: str, encoder: PaperEncoder) -> bool:
        if encoder.source is None or not (self.data / name).is_dir():
            return False
        if encoder.title != "mpnet" or self.mpnet:
            return True
        with tempfile.TemporaryDirectory() as spool:
            return is_encoded(self.data / name, "test", Path(spool), encoder.source)


@dataclass(frozen=True)
class Measured:
    """The thresholds paper's measures with one seed: shares, not percent.

    Attributes:
        metrics: Bootstrapped accuracy, NDCG, COE and ROE, without a threshold and at τ.
        tau: τ(ψ).
        psi: ψ.
        accuracy: Accuracy of all questions.
        ndcg: NDCG@5 of all questions.
        i_a: Isotropy of the documents, eq. 5.
        i_b: Isotropy of the documents, eq. 6.
    """

    metrics: MetricsRecord
    tau: float
    psi: int
    accuracy: float
    ndcg: float
    i_a: float
    i_b: float


def spread(values: Sequence[float], digits: int = 1, scale: float = 100) -> str:
    """Format the mean over the seeds ± the largest deviation of a seed; without ± if all are equal."""
    center = float(np.mean(values))
    off = f"{scale * max(center - min(values), max(values) - center):.{digits}f}"
    return f"{scale * center:.{digits}f}" + (f"±{off}" if float(off) else "")


def of(rows: Sequence[Measured], read: Callable[[Measured], float]) -> list[float]:
    """Read one measure with every seed."""
    return [read(row) for row in rows]


@lru_cache(maxsize=4)
def _encoded(data: Path, name: str, encoder: str) -> EncodedSplit:
    return EncodedSplit.read(data, name, "test", encoder)


@cache
def _measured(data: Path, name: str, encoder: str, variant: str, seed: int) -> Measured:
    """Draw and measure as `taugate calibrate --method bootstrap --lexical off --holdout 0 --refuse off` does."""
    judged = _judged(data, name, encoder, variant)[0]
    draw, random = _drawn(data, name, encoder, variant, seed)
    threshold = bootstrap_threshold(judged, draw.rows)
    scored = ScoredQueries(judged, judged.take(np.arange(0)).top, None, None)
    metrics = measure(scored, random, draw, "similarity", np.float32(threshold.tau), DEFAULT_OVERLAP_PERCENTILE)
    means = float(judged.accuracy().mean()), float(judged.ndcg().mean())
    return Measured(metrics, threshold.tau, threshold.psi, *means, *_isotropy(data, name, encoder, variant))


def _drawn(data: Path, name: str, encoder: str, variant: str, seed: int) -> tuple[Resamples, Float32]:
    judged, documents, vectors = _judged(data, name, encoder, variant)
    units = SamplingUnits.from_clusters(np.arange(len(judged)))
    settings = CalibrationSettings(holdout=0, seed=seed, k=K)
    draw = Resamples.draw(np.random.default_rng(seed), units, len(documents), settings)
    return draw, FlatIndex.build(documents).score(vectors, draw.random_documents[:, None])[:, 0]


def _overlap(data: Path, name: str, encoder: str, percentile: float, seed: int) -> tuple[float, ...]:
    judged = _judged(data, name, encoder, BASELINE)[0]
    draw, random = _drawn(data, name, encoder, BASELINE, seed)
    thetas = overlap_thresholds(judged.top.scores, draw.rows, percentile)
    coe, roe = (Interval.of_bootstraps(share_above(scores, thetas)) for scores in (judged.correct, random))
    return coe.mean, coe.upper - coe.lower, roe.mean, roe.upper - roe.lower


@lru_cache(maxsize=2)
def _judged(data: Path, name: str, encoder: str, variant: str) -> tuple[JudgedQueries, Float32, Float32]:
    encoded = _encoded(data, name, encoder)
    documents, vectors = encoded.vectors.documents, dense_of(encoded.vectors.answerable)
    if variant != BASELINE:
        projection = TRANSFORMATIONS[variant](documents)
        documents, vectors = projection.apply(documents), projection.apply(vectors)
    judged = judge_queries(encoded.queries, vectors, FlatIndex.build(documents), K)
    return judged, documents, vectors


@cache
def _isotropy(data: Path, name: str, encoder: str, variant: str) -> tuple[float, float]:
    record = isotropy(_judged(data, name, encoder, variant)[1])
    return record.i_a, record.i_b
