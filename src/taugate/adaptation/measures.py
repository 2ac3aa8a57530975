"""The papers' measures of an encoder before and after adaptation; none of them affects acceptance."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from taugate.adaptation.forgetting import general_set
from taugate.calibration.gate.baseline import SearchTrial
from taugate.calibration.metrics.clusters import SamplingUnits, clusters
from taugate.calibration.metrics.familiarity import PARAPHRASES, QUERIES, domain_familiarity
from taugate.calibration.metrics.isotropy import isotropy
from taugate.calibration.metrics.measure import Resamples, measure
from taugate.calibration.metrics.ranking import JudgedQueries, ScoredQueries
from taugate.calibration.metrics.separation import separation
from taugate.calibration.metrics.spectrum import PowerLaw, power_law, spectrum
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.threshold.decide import bootstrap_threshold
from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.ingestion.queries.crop import sampling_key
from taugate.ingestion.queries.paraphrase import paraphrases_by_model, paraphrases_by_rules
from taugate.ingestion.queries.question_rule import QuestionRule
from taugate.ingestion.queries.replies import LanguageModel
from taugate.retrieval.encoder.encoder import Role
from taugate.retrieval.release.evidence import Estimate, Interval
from taugate.retrieval.release.measures import (
    Distances,
    EncoderRow,
    FamiliarityRecord,
    MeasuresRecord,
    PowerLawRecord,
    SeparationRecord,
    SpectrumRecord,
)
from taugate.retrieval.vectors.similarity import Float32

Encode = Callable[[Sequence[str], Role], Float32]
BINS = 100  # of a histogram of distances, 0 to 2
BASE = "base"  # name of the base encoder in comparisons
TEXTS = 400  # approximate number of texts encoded for the measures: the general set, and queries with paraphrases
_STREAM = 5  # random stream of the seed for random documents and bootstraps


@dataclass(frozen=True)
class ParaphrasedQueries:
    """Queries with their paraphrases; `source` and `writer` are those of FamiliarityRecord."""

    queries: Sequence[str]
    paraphrases: Sequence[tuple[str, ...]]
    source: Literal["rules", "llm"]
    writer: str | None

    @classmethod
    def write(
        cls,
        queries: Sequence[LabelledQuery],
        seed: int,
        model: LanguageModel | None = None,
        advance: Callable[[], None] = lambda: None,
    ) -> "ParaphrasedQueries":
        """Draw ten queries and write three paraphrases of each.

        Args:
            queries: Queries to draw from.
            seed: Seed of the draw and of the model.
            model: Language model, None for rules.
            advance: Called after each reply of the model.

        Raises:
            InputError: If the model writes too few paraphrases.
            OSError: If the model does not respond.
        """
        drawn = sorted(queries, key=lambda query: sampling_key(query.id, seed))[:QUERIES]
        texts = [query.text for query in drawn]
        if model is not None:
            return cls(texts, paraphrases_by_model(texts, PARAPHRASES, seed, model, advance), "llm", model.name)
        rule = QuestionRule.for_texts(query.text for query in queries)
        return cls(texts, [paraphrases_by_rules(text, rule) for text in texts], "rules", rule.language)


@dataclass(frozen=True)
class OtherTexts:
    """Vectors, by one encoder, of texts that are neither documents nor queries; all float32 of unit length.

    Attributes:
        passages: (G, d) passages of the general set.
        questions: (G, d) questions of the general set.
        queries: (m, d) drawn queries.
        paraphrases: (m, n, d) paraphrases of these queries.
    """

    passages: Float32
    questions: Float32
    queries: Float32
    paraphrases: Float32

    @classmethod
    def encode(cls, paraphrased: ParaphrasedQueries, encode: Encode) -> "OtherTexts":
        """Encode the texts, which takes a second or two.

        Args:
            paraphrased: Drawn queries with paraphrases.
            encode: Function that encodes texts.
        """
        general = general_set()
        questions = [query.text for query in general.queries]
        rephrased = [text for paraphrases in paraphrased.paraphrases for text in paraphrases]
        vectors = encode([*questions, *paraphrased.queries, *rephrased], "query")
        asking, queries, rephrasings = np.split(vectors, np.cumsum([len(questions), len(paraphrased.queries)]))
        shape = len(queries), -1, vectors.shape[1]
        return cls(encode(general.passages, "document"), asking, queries, rephrasings.reshape(shape))

    def through(
        self, apply: Callable[[Float32], Float32], apply_to_documents: Callable[[Float32], Float32] | None = None
    ) -> "OtherTexts":
        """Apply a map to the vectors, without encoding the texts again.

        Args:
            apply: Map of (n, d) vectors.
            apply_to_documents: Map of document vectors, None for the same map.
        """
        flat = self.paraphrases.reshape(-1, self.paraphrases.shape[2])
        paraphrases = apply(flat).reshape(self.paraphrases.shape)
        passages = (apply_to_documents or apply)(self.passages)
        return OtherTexts(passages, apply(self.questions), apply(self.queries), paraphrases)

    @property
    def familiarity(self) -> float:
        """Domain familiarity of the encoder."""
        return domain_familiarity(self.queries, self.paraphrases)


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
    separations = [separation(*vectors) for vectors in (before, after)]
    records = [
        Distances(
            mean=float(distances.mean()),
            counts=np.histogram(distances, bins=BINS, range=(0, 2))[0].tolist(),
            general=float(separation(passages, passages, same=True).mean()),
        )
        for distances, (_, passages) in zip(separations, (before, after), strict=True)
    ]
    moved_away = float((separations[1] > separations[0]).mean())
    return SeparationRecord(before=records[0], after=records[1], moved_away=moved_away)


def power_law_record(documents: Float32, seed: int) -> PowerLawRecord | None:
    """Fit the power law of (N, d) float32 documents; None if they vary too little. `seed` is of the p-value."""
    eigenvalues = spectrum(documents)
    law = power_law(eigenvalues)
    if law is None:
        return None
    return PowerLawRecord(
        beta=law.interval,
        r_squared=law.r_squared,
        p=law.p_value(seed),
        first=law.first,
        last=law.last,
        whole=PowerLaw.fit(eigenvalues, 1).beta,
    )


def _interval(estimate: Estimate) -> Interval:
    return Interval(mean=estimate.mean, lower=estimate.lower, upper=estimate.upper)
