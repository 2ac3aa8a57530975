"""The papers' measures of an encoder, before and after adaptation; none of them affects admission."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
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
from taugate.retrieval.release.evidence import Estimate, Interval, IsotropyRecord
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
BASE = "base"  # name of the base encoder among those that are compared
TEXTS = 400  # about so many are encoded for the measures: the general set, and queries with their paraphrases
_STREAM = 5  # of the seed, for random documents and bootstraps


@dataclass(frozen=True)
class ParaphrasedQueries:
    """Queries with paraphrases of each.

    Attributes:
        source: As of FamiliarityRecord.
        writer: As of FamiliarityRecord.
    """

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
            queries: To draw from.
            seed: Of the draw and of the model.
            model: That writes, None for rules.
            advance: Called after each reply of the model.

        Raises:
            InputError: Where it writes too few, OSError where it does not answer.
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
        passages: (G, d) and questions: (G, d), of the general set.
        queries: (m, d), drawn ones.
        paraphrases: (m, n, d), of these.
    """

    passages: Float32
    questions: Float32
    queries: Float32
    paraphrases: Float32

    @classmethod
    def encode(cls, asked: ParaphrasedQueries, encode: Encode) -> "OtherTexts":
        """Encode them, which takes a second or two.

        Args:
            asked: Drawn queries with paraphrases.
            encode: Any texts.
        """
        general = general_set()
        questions = [query.text for query in general.queries]
        rephrased = [text for each in asked.paraphrases for text in each]
        vectors = encode([*questions, *asked.queries, *rephrased], "query")
        asking, queries, paraphrases = np.split(vectors, np.cumsum([len(questions), len(asked.queries)]))
        shape = len(queries), -1, vectors.shape[1]
        return cls(encode(general.passages, "document"), asking, queries, paraphrases.reshape(shape))

    def through(
        self, apply: Callable[[Float32], Float32], apply_to_documents: Callable[[Float32], Float32] | None = None
    ) -> "OtherTexts":
        """Return their vectors through a map, without encoding them again.

        Args:
            apply: Maps (n, d) vectors.
            apply_to_documents: Maps those of documents, None for the same.
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
class EncoderComparison:
    """The encoders that are compared, on the corpus and its unseen queries.

    Attributes:
        queries: Unseen ones.
        trials: Their search by the base encoder, under "base", and by each recipe tried, under its name.
        k: K.
        seed: Of the draws.
    """

    queries: Sequence[LabelledQuery]
    trials: Mapping[str, SearchTrial]
    k: int
    seed: int

    def measure(self, chosen: str, asked: ParaphrasedQueries, before: OtherTexts, after: OtherTexts) -> MeasuresRecord:
        """Measure all that the papers do.

        Args:
            chosen: Name of the recipe that is kept.
            asked: Queries with paraphrases.
            before: Vectors of these and of the general set, by the base encoder and by the chosen one.
            after: Vectors of these and of the general set, by the base encoder and by the chosen one.
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
                source=asked.source,
                writer=asked.writer,
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
            name: Of the row.
            trial: Its search of the unseen queries.
        """
        settings = CalibrationSettings(k=self.k, seed=self.seed)
        units = SamplingUnits.from_labels(clusters(self.queries))
        rng = np.random.default_rng([self.seed, _STREAM])
        draw = Resamples.draw(rng, units, len(trial.documents), settings)
        judged = JudgedQueries.judge(self.queries, trial.vectors, trial.exact, self.k, trial.parents)
        found = bootstrap_threshold(judged, draw.rows)
        random = trial.exact.score(trial.vectors, draw.random_documents[:, None])[:, 0]
        none = trial.exact.search(trial.vectors[:0], self.k)  # the gate's queries all have an answer
        metrics = measure(
            ScoredQueries(judged, none, None, None),
            random,
            draw,
            "similarity",
            np.float32(found.tau),
            settings.overlap_percentile,
        )
        return EncoderRow(
            name=name,
            accuracy=_interval(metrics.accuracy),
            ndcg=_interval(metrics.ndcg),
            coe=_interval(metrics.coe),
            roe=_interval(metrics.roe),
            tau=found.tau,
            psi=found.psi,
            accuracy_at_tau=_interval(metrics.accuracy_at_tau),
            isotropy=IsotropyRecord(**asdict(isotropy(trial.documents))),
        )


def separation_record(before: tuple[Float32, Float32], after: tuple[Float32, Float32]) -> SeparationRecord:
    """Measure Δ_M of the corpus.

    Args:
        before: (N, d) documents and (G, d) general passages by each encoder.
        after: (N, d) documents and (G, d) general passages by each encoder.
    """
    found = [separation(*each) for each in (before, after)]
    records = [
        Distances(
            mean=float(distances.mean()),
            counts=np.histogram(distances, bins=BINS, range=(0, 2))[0].tolist(),
            general=float(separation(passages, passages, same=True).mean()),
        )
        for distances, (_, passages) in zip(found, (before, after), strict=True)
    ]
    return SeparationRecord(before=records[0], after=records[1], moved_away=float((found[1] > found[0]).mean()))


def power_law_record(documents: Float32, seed: int) -> PowerLawRecord | None:
    """Fit the power law of documents, (N, d) float32.

    Args:
        seed: Of its p-value. None where they vary too little.
    """
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


def _interval(found: Estimate) -> Interval:
    return Interval(mean=found.mean, lower=found.lower, upper=found.upper)
