"""What the papers measure of an encoder, before and after: none of it decides on admission."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from taugate.adaptation.forgetting import GeneralSet, general_set
from taugate.calibration.gate.baseline import RankingOutcomes, SearchTrial
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
_STREAM = 5  # of the seed, for random documents and bootstraps


@dataclass(frozen=True)
class ParaphrasedQueries:
    """Queries with paraphrases of each; source, writer: as of FamiliarityRecord."""

    queries: Sequence[str]
    paraphrases: Sequence[tuple[str, ...]]
    source: str
    writer: str | None

    @classmethod
    def write(
        cls, queries: Sequence[LabelledQuery], seed: int, model: LanguageModel | None, advance: Callable[[], None]
    ) -> "ParaphrasedQueries":
        """Draw ten queries and write three paraphrases of each.

        queries: to draw from; seed: of the draw and of the model; model: that writes, None for rules; advance: called
        after each reply of the model. Raises InputError where it writes too few, OSError where it does not answer.
        """
        drawn = sorted(queries, key=lambda query: sampling_key(query.id, seed))[:QUERIES]
        texts = [query.text for query in drawn]
        if model is not None:
            return cls(texts, paraphrases_by_model(texts, PARAPHRASES, seed, model, advance), "llm", model.name)
        rule = QuestionRule.for_texts(query.text for query in queries)
        return cls(texts, [paraphrases_by_rules(text, rule) for text in texts], "rules", rule.language)

    def familiarity(self, encode: Encode) -> float:
        """Return the domain familiarity of an encoder; encode: texts by it."""
        texts = encode(self.queries, "query")
        others = encode([text for each in self.paraphrases for text in each], "query")
        return domain_familiarity(texts, others.reshape(len(texts), -1, texts.shape[1]))


@dataclass(frozen=True)
class MeasuredEncoder:
    """An encoder as it is measured; documents: (N, d) float32, of the corpus; encode: any other texts by it."""

    documents: Float32
    encode: Encode


@dataclass(frozen=True)
class EncoderComparison:
    """Everything that two encoders are compared on.

    queries: unseen ones; trials: the base encoder's search of them, and that of each recipe tried, by name; k: K; seed:
    of the draws.
    """

    queries: Sequence[LabelledQuery]
    trials: dict[str, SearchTrial]
    k: int
    seed: int

    def measure(self, before: MeasuredEncoder, after: MeasuredEncoder, asked: ParaphrasedQueries) -> MeasuresRecord:
        """Measure all of it; before, after: base and adapted encoder; asked: queries with paraphrases."""
        general = general_set()
        return MeasuresRecord(
            k=self.k,
            rows=[self.row(name, trial) for name, trial in self.trials.items()],
            separation=separation_record(before, after, general),
            familiarity=FamiliarityRecord(
                before=asked.familiarity(before.encode),
                after=asked.familiarity(after.encode),
                queries=len(asked.queries),
                paraphrases=len(asked.paraphrases[0]),
                source="llm" if asked.source == "llm" else "rules",
                writer=asked.writer,
            ),
            spectrum=SpectrumRecord(
                before=power_law_record(before.documents, self.seed), after=power_law_record(after.documents, self.seed)
            ),
            forgetting=general.compare(*(_general_outcomes(general, each.encode) for each in (before, after))),
        )

    def row(self, name: str, trial: SearchTrial) -> EncoderRow:
        """Measure one encoder as calibration would: bootstraps, papers' τ, COE and ROE.

        name: of the row; trial: its search of the unseen queries.
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


def separation_record(before: MeasuredEncoder, after: MeasuredEncoder, general: GeneralSet) -> SeparationRecord:
    """Measure Δ_M of all documents, before and after; general: the text that belongs to no domain."""
    passages = [each.encode(general.passages, "document") for each in (before, after)]
    first, second = (
        separation(each.documents, texts) for each, texts in zip((before, after), passages, strict=True)
    )
    records = [
        Distances(
            mean=float(found.mean()),
            counts=np.histogram(found, bins=BINS, range=(0, 2))[0].tolist(),
            general=float(separation(texts, texts, same=True).mean()),
        )
        for found, texts in zip((first, second), passages, strict=True)
    ]
    return SeparationRecord(before=records[0], after=records[1], moved_away=float((second > first).mean()))


def power_law_record(documents: Float32, seed: int) -> PowerLawRecord | None:
    """Fit the power law of documents, (N, d) float32; seed: of its p-value. None where they vary too little."""
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


def _general_outcomes(general: GeneralSet, encode: Encode) -> RankingOutcomes:
    questions = encode([query.text for query in general.queries], "query")
    return general.judge(encode(general.passages, "document"), questions)


def _interval(found: Estimate) -> Interval:
    return Interval(mean=found.mean, lower=found.lower, upper=found.upper)
