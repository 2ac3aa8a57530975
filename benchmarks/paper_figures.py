"""The measures that the thresholds paper prints of an encoder on a data set: a row of its Table 6."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.documents import Parents
from taugate.calibration.metrics.isotropy import Isotropy, isotropy
from taugate.calibration.metrics.measure import Resamples, measure
from taugate.calibration.metrics.ranking import JudgedQueries, ScoredQueries
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.threshold.decide import PercentileThreshold, bootstrap_threshold
from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.manifest import MetricsRecord
from taugate.retrieval.vectors.similarity import Float32, pair_similarity

HEADER = ("accuracy", "NDCG", "COE", "ROE", "τ(ψ)", "accuracy at τ", "I_A", "I_B")


@dataclass(frozen=True)
class PaperFigures:
    """What the paper prints, of queries that are all answerable.

    Attributes:
        judged: The queries with their results.
        random: (q,) float32, S_rand.
        threshold: τ(ψ) by the paper's rule.
        metrics: With 95 % intervals of the bootstraps.
        spread: Isotropy of the documents.
    """

    judged: JudgedQueries
    random: Float32
    threshold: PercentileThreshold
    metrics: MetricsRecord
    spread: Isotropy

    @classmethod
    def of(
        cls,
        queries: Sequence[LabelledQuery],
        vectors: Float32,
        documents: Float32,
        settings: CalibrationSettings,
        parents: Parents = None,
    ) -> Self:
        """Search and measure.

        Args:
            queries: q of them.
            vectors: (q, d) and documents: (N, d) float32.
            settings: K, m, l, the percentile of the overlap, and the seed.
            parents: Of the corpus.
        """
        judged = JudgedQueries.judge(queries, vectors, FlatIndex.build(documents), settings.k, parents)
        units = SamplingUnits.from_labels(np.arange(len(judged)))
        draw = Resamples.draw(np.random.default_rng(settings.seed), units, len(documents), settings)
        random = pair_similarity(vectors, documents, draw.random_documents[:, None])[:, 0]
        found = bootstrap_threshold(judged, draw.rows)
        scored = ScoredQueries(judged, TopK(judged.top.scores[:0], judged.top.positions[:0]), None, None)
        tau = np.float32(found.tau)
        metrics = measure(scored, random, draw, "similarity", tau, settings.overlap_percentile)
        return cls(judged, random, found, metrics, isotropy(documents))

    def row(self) -> list[str]:
        """Format the cells under HEADER, in percent but for τ."""
        metrics, found = self.metrics, self.threshold
        intervals = [percent(each) for each in (metrics.accuracy, metrics.ndcg, metrics.coe, metrics.roe)]
        tau = f"{found.tau:.3f}".replace("0.", ".", 1)
        at_tau = percent(metrics.accuracy_at_tau)
        return [
            *intervals,
            f"{tau} ({found.psi})",
            at_tau,
            f"{100 * self.spread.i_a:.1f}",
            f"{100 * self.spread.i_b:.1f}",
        ]


def percent(interval: Interval) -> str:
    """Format a mean with its interval, in percent."""
    return f"{100 * interval.mean:.1f} ({100 * interval.lower:.0f}–{100 * interval.upper:.0f})"
