"""The papers' measures of one encoder that need more texts or searches than a calibration has.

Forgetting: measures an adapted encoder on everyday questions outside its domain. Thresholds paper §4.1 and Table 4:
encoders that were adapted to a domain lose accuracy on a general data set.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.acceptance.baseline import SearchTrial
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode
from taugate.calibration.metrics import embeddings
from taugate.calibration.metrics.inputs import clusters
from taugate.calibration.progress import Job
from taugate.data.beir import read_dataset
from taugate.data.generation.generate import sampling_key
from taugate.data.generation.language_model import LanguageModel, paraphrases_by_model, paraphrases_by_rules
from taugate.data.labelled_queries import LabelledQuery
from taugate.data.questions import QuestionRule
from taugate.evidence.acceptance import RankingOutcomes
from taugate.evidence.clusters import PerQuery, SamplingUnits
from taugate.evidence.risk.losses import paired_losses
from taugate.evidence.rules import CONFIDENCE
from taugate.policy.arrays import Float32, map_dense
from taugate.release.encoder import Role
from taugate.release.evidence import Interval, IsotropyRecord, Record
from taugate.release.measures import Distances, ForgettingRecord, PairedChange, PowerLawRecord
from taugate.retrieval.encoder.encoder import ExportedEncoder

_FOLDER = Path(__file__).with_name("general")

Encode = Callable[[Sequence[str], Role], Float32]
BINS = 100  # of a histogram of distances, 0 to 2
TEXTS = 400  # approximate number of texts encoded for the measures: the general set, and queries with paraphrases
UNCHANGED = "none"  # name of no transformation


@dataclass(frozen=True)
class GeneralSet:
    """The general set that comes with Taugate (calibration/comparison/general/README.md)."""

    passages: Sequence[str]
    queries: Sequence[LabelledQuery]  # queries with the passages that answer them

    @classmethod
    def read(cls, folder: Path = _FOLDER) -> Self:
        """Read the set from a folder in the BEIR layout, without chunks."""
        with tempfile.TemporaryDirectory(prefix="taugate-") as spool:
            dataset = read_dataset(folder, "test", Path(spool))
            return cls([document.encoded_text for document in dataset.documents], dataset.answerable)

    def judge(self, passages: Float32, questions: Float32) -> RankingOutcomes:
        """Search each question, and return accuracy@1 and NDCG@10.

        Args:
            passages: (N, d) float32, in the order of the set.
            questions: (q, d) float32 by the same encoder, in the order of the set.
        """
        return SearchTrial.build(self.queries, questions, passages, 1).outcomes()

    def compare(self, before: RankingOutcomes, after: RankingOutcomes) -> ForgettingRecord:
        """Compare two encoders from their results of `judge`."""
        units = SamplingUnits.from_clusters(clusters(self.queries))
        return ForgettingRecord(
            questions=len(self.queries),
            accuracy=_change(before.accuracy, after.accuracy, units),
            ndcg=_change(before.ndcg, after.ndcg, units),
        )


@cache
def general_set() -> GeneralSet:
    """Return the general set that comes with Taugate, read once."""
    return GeneralSet.read()


def _change(before: PerQuery, after: PerQuery, units: SamplingUnits) -> PairedChange:
    losses = paired_losses(before - after, units)
    lower, upper = losses.lower_limit(CONFIDENCE), losses.upper_limit(CONFIDENCE)
    return PairedChange(
        before=float(before.mean()),
        after=float(after.mean()),
        change=Interval(mean=0.0 - losses.mean, lower=-upper, upper=-lower),
    )


def forgetting_words(record: ForgettingRecord, *, unmerged: bool) -> str:
    """State in one line how general questions changed, and what helps if they are worse.

    Args:
        unmerged: Whether the encoder has trained weights that could be merged with the base's.
    """
    change = record.ndcg.change
    change_line = (
        f"NDCG@10 {_points(change.mean)} points ({_points(change.lower)} to {_points(change.upper)}), accuracy@1 "
        f"{_points(record.accuracy.change.mean)}, on {record.questions} everyday questions"
    )
    if not record.lost:
        return change_line
    if unmerged:
        return f"{change_line}; if the encoder has to answer such questions too, try --recipe merge, or keep its base"
    return f"{change_line}; if the encoder has to answer such questions too, keep its base"


def _points(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:+.1f}"  # never -0.0


def encode_with(encoder: ExportedEncoder, job: Job, documents: ExportedEncoder | None = None) -> Encode:
    """Return a function that encodes texts, or reads their embeddings from the cache.

    Args:
        documents: Encoder of documents, None for the same.
    """
    encoders: dict[Role, ExportedEncoder] = {"query": encoder, "document": documents or encoder}

    def embed(texts: Sequence[str], role: Role) -> Float32:
        chosen = encoders[role]
        cache = EmbeddingCache.of(chosen)
        return encode(chosen, texts, len(texts), role, cache, job).vectors

    return embed


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
            seed: Seed of the draw and of the model.
            advance: Called after each reply of the model.
        """
        drawn = sorted(queries, key=lambda query: sampling_key(query.id, seed))[: embeddings.QUERIES]
        texts = [query.text for query in drawn]
        if model is not None:
            return cls(
                texts, paraphrases_by_model(texts, embeddings.PARAPHRASES, seed, model, advance), "llm", model.name
            )
        rule = QuestionRule.for_texts(query.text for query in queries)
        return cls(texts, [paraphrases_by_rules(text, rule) for text in texts], "rules", rule.language)


@dataclass(frozen=True)
class OtherTexts:
    """Vectors, by one encoder, of texts that are neither documents nor queries; all float32 of unit length."""

    passages: Float32  # (G, d) passages of the general set
    questions: Float32  # (G, d) questions of the general set
    queries: Float32  # (m, d) drawn queries
    paraphrases: Float32  # (m, n, d) paraphrases of these queries

    @classmethod
    def encode(cls, paraphrased: ParaphrasedQueries, encode: Encode) -> "OtherTexts":
        """Encode the texts, which takes a second or two."""
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
        return embeddings.domain_familiarity(self.queries, self.paraphrases)


class TransformedSearch(Record):
    """Accuracy@K of all queries, and isotropy of the documents, under a transformation."""

    accuracy: float
    isotropy: IsotropyRecord

    def __str__(self) -> str:
        return f"{self.accuracy:.3f}; {self.isotropy.i_a:.3f}, {self.isotropy.i_b:.3f}"


class EncoderMeasures(Record):
    """The measures of one encoder; those of texts are None for vectors that come with the data set."""

    transformed: dict[str, TransformedSearch]  # by transformation, none first (thresholds paper, Table 7)
    power_law: PowerLawRecord | None  # power law of the documents; None if they vary too little
    familiarity: float | None = None  # DF of ten queries with three paraphrases each
    separation: float | None = None  # mean Δ_M of the documents
    relative_separation: float | None = None  # the same in units of the distance between general texts
    everyday: float | None = None  # mean NDCG@10 of the general set

    @property
    def decay(self) -> float | None:
        """β over all ranks."""
        return None if self.power_law is None else self.power_law.whole


def measure_encoder(
    trial: SearchTrial, paraphrased: ParaphrasedQueries, encode: Encode | None, seed: int
) -> tuple[EncoderMeasures, RankingOutcomes | None]:
    """Measure an encoder; returns the results of the general set as well.

    Args:
        trial: Its search of the labelled queries, by the cosine.
        encode: Function that encodes texts; None for vectors that come with the data set.
    """
    searches = {UNCHANGED: trial} | {name: _through(trial, name) for name in embeddings.TRANSFORMATIONS}
    measures = EncoderMeasures(
        transformed={
            name: TransformedSearch(accuracy=_accuracy(each), isotropy=embeddings.isotropy(each.documents))
            for name, each in searches.items()
        },
        power_law=power_law_record(trial.documents, seed),
    )
    if encode is None:
        return measures, None
    texts = OtherTexts.encode(paraphrased, encode)
    general = general_set().judge(texts.passages, texts.questions)
    distances = distances_record(embeddings.separation(trial.documents, texts.passages), texts.passages)
    of_texts = {
        "familiarity": texts.familiarity,
        "separation": distances.mean,
        "relative_separation": distances.relative,
        "everyday": float(general.ndcg.mean()),
    }
    return measures.model_copy(update=of_texts), general


def distances_record(distances: NDArray[np.float64], general: Float32) -> Distances:
    """Summarize Δ_M, the (N,) distances of documents from the nearest of (G, d) general texts."""
    return Distances(
        mean=float(distances.mean()),
        counts=np.histogram(distances, bins=BINS, range=(0, 2))[0].tolist(),
        general=float(embeddings.separation(general, general, same=True).mean()),
    )


def power_law_record(documents: Float32, seed: int) -> PowerLawRecord | None:
    """Fit the power law of (N, d) float32 documents; None if they vary too little. `seed` is of the p-value."""
    eigenvalues = embeddings.spectrum(documents)
    law = embeddings.power_law(eigenvalues)
    if law is None:
        return None
    return PowerLawRecord(
        beta=law.interval,
        r_squared=law.r_squared,
        p=law.p_value(seed),
        first=law.first,
        last=law.last,
        whole=embeddings.PowerLaw.fit(eigenvalues, 1).beta,
    )


def _through(trial: SearchTrial, name: str) -> SearchTrial:
    projection = embeddings.TRANSFORMATIONS[name](trial.documents)
    vectors = map_dense(trial.vectors, projection.apply)
    return SearchTrial.build(trial.queries, vectors, projection.apply(trial.documents), trial.k, trial.parents)


def _accuracy(trial: SearchTrial) -> float:
    return float(trial.outcomes().accuracy.mean())
