"""The papers' measures of an encoder before and after adaptation; none of them affects acceptance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from taugate.calibration.acceptance.baseline import SearchTrial
from taugate.calibration.comparison.general_set import general_set
from taugate.calibration.comparison.measures import OtherTexts, ParaphrasedQueries, distances_record, power_law_record
from taugate.calibration.metrics.clusters import SamplingUnits, clusters
from taugate.calibration.metrics.isotropy import isotropy
from taugate.calibration.metrics.measure import Resamples, measure
from taugate.calibration.metrics.ranking import JudgedQueries, ScoredQueries
from taugate.calibration.metrics.separation import separation
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.threshold.decide import bootstrap_threshold
from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.retrieval.release.evidence import Estimate, Interval
from taugate.retrieval.release.measures import (
    EncoderRow,
    FamiliarityRecord,
    MeasuresRecord,
    SeparationRecord,
    SpectrumRecord,
)
from taugate.retrieval.vectors.similarity import Float32

BASE = "base"  # name of the base encoder in comparisons
_STREAM = 5  # random stream of the seed for random documents and bootstraps


@dataclass(frozen=True)
class ComparedEncoders:
    """The encoders that are compared, on the corpus and its unseen queries.

    Attributes:
        queries: Unseen queries.
        trials: Searches of these queries by the base encoder, under "base", and by each recipe, under its name.
        k: K, the number of results.
        seed: Seed of the draws.
    """

    queries: Sequence[LabelledQuery]
    trials: Mapping[str, SearchTrial]
    k: int
    seed: int

    def measure(
        self, chosen: str, paraphrased: ParaphrasedQueries, before: OtherTexts, after: OtherTexts
    ) -> MeasuresRecord:
        """Compute the measures of the papers.

        Args:
            chosen: Name of the chosen recipe.
            paraphrased: Queries with paraphrases.
            before: Vectors of these queries and of the general set by the base encoder.
            after: Vectors of these queries and of the general set by the chosen encoder.
        """
        general = general_set()
        first, second = self.trials[BASE].documents, self.trials[chosen].documents
        return MeasuresRecord(
            k=self.k,
            rows=[self.row(name, trial) for name, trial in self.trials.items()],
            separation=separation_record((first, before.passages), (second, after.passages)),
            familiarity=FamiliarityRecord(
                before=before.familiarity,
                after=after.familiarity,
                queries=before.paraphrases.shape[0],
                paraphrases=before.paraphrases.shape[1],
                source=paraphrased.source,
                writer=paraphrased.writer,
            ),
            spectrum=SpectrumRecord(
                before=power_law_record(first, self.seed), after=power_law_record(second, self.seed)
            ),
            forgetting=general.compare(
                general.judge(before.passages, before.questions), general.judge(after.passages, after.questions)
            ),
        )

    def row(self, name: str, trial: SearchTrial) -> EncoderRow:
        """Measure one encoder as calibration would: bootstraps, papers' τ, COE and ROE.

        Args:
            name: Name of the row.
            trial: The encoder's search of the unseen queries.
        """
        settings = CalibrationSettings(k=self.k, seed=self.seed)
        units = SamplingUnits.from_clusters(clusters(self.queries))
        rng = np.random.default_rng([self.seed, _STREAM])
        draw = Resamples.draw(rng, units, len(trial.documents), settings)
        judged = JudgedQueries.judge(self.queries, trial.vectors, trial.exact, self.k, trial.parents)
        threshold = bootstrap_threshold(judged, draw.rows)
        random = trial.exact.score(trial.vectors, draw.random_documents[:, None])[:, 0]
        none = trial.exact.search(trial.vectors[:0], self.k)  # the gate's queries all have an answer
        metrics = measure(
            ScoredQueries(judged, none, None, None),
            random,
            draw,
            "similarity",
            np.float32(threshold.tau),
            settings.overlap_percentile,
        )
        if metrics.roe is None:
            raise AssertionError("random documents were scored")
        return EncoderRow(
            name=name,
            accuracy=_interval(metrics.accuracy),
            ndcg=_interval(metrics.ndcg),
            coe=_interval(metrics.coe),
            roe=_interval(metrics.roe),
            tau=threshold.tau,
            psi=threshold.psi,
            accuracy_at_tau=_interval(metrics.accuracy_at_tau),
            isotropy=isotropy(trial.documents),
        )


def separation_record(before: tuple[Float32, Float32], after: tuple[Float32, Float32]) -> SeparationRecord:
    """Measure Δ_M of the corpus.

    Args:
        before: (N, d) documents and (G, d) general passages by the base encoder.
        after: (N, d) documents and (G, d) general passages by the adapted encoder.
    """
    distances = [separation(*vectors) for vectors in (before, after)]
    records = [distances_record(each, general) for each, (_, general) in zip(distances, (before, after), strict=True)]
    return SeparationRecord(before=records[0], after=records[1], moved_away=float((distances[1] > distances[0]).mean()))


def _interval(estimate: Estimate) -> Interval:
    return Interval(mean=estimate.mean, lower=estimate.lower, upper=estimate.upper)
