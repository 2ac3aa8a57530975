"""Records of a manifest beside policy and search, and what reads manifests of schema 2."""

from collections.abc import Collection, Mapping
from typing import Final, Literal

from pydantic import Field

from taugate.release.evidence import Interval, Record
from taugate.release.refusal_records import refusal_of_schema_2
from taugate.release.state import State
from taugate.storage.files import Json

SCHEMA_2: Final = 2

StateReason = Literal["generated_queries", "few_queries", "few_documents"]
# With 30 queries, accuracy is known to ± .18 at worst (1.96·√(.25 / 30)), more than encoders differ.
MIN_QUERIES = 30


def migrated(manifest: Mapping[str, Json], version: int) -> dict[str, Json]:
    """Return a manifest of schema 2 as one of this version, both as unchecked JSON."""
    second = manifest.get("second_stage")
    if isinstance(second, Mapping) and isinstance(first := second.get("first"), Mapping):
        manifest = {**manifest, "second_stage": {**second, "first": _with_one_refusal(first)}}
    return {**_with_one_refusal(manifest), "schema_version": version}


def _with_one_refusal(record: Mapping[str, Json]) -> dict[str, Json]:
    """Return a manifest, or its first stage, with one record of refusals in place of three."""
    remaining = {name: value for name, value in record.items() if name not in {"abstention", "refusal", "no_answer"}}
    refusal = refusal_of_schema_2(record)
    return remaining if refusal is None else {**remaining, "refusal": refusal}


class CheckedAnswers(Interval):
    """The share of answers that are lost, to τ or to ρ, with one-sided 95 % limits.

    An answer is a relevant document in the top K of a query. It is lost if the query keeps no relevant result.
    """

    heldout: bool  # whether the queries are held-out ones; else they are those that chose the thresholds
    answers: int  # number of queries that find an answer
    lost: int  # number of these that lose it


TrainedSimilarity = Literal["dot", "euclidean", "manhattan"]


class EncoderFitRecord(Record):
    """Problems between the encoder and the texts of the data set."""

    # Number of checked documents, evenly spread over the corpus; all if there are at most 5,000.
    documents: int = Field(ge=1)
    unreadable_documents: int = Field(ge=0)  # number of documents whose text is mostly unknown tokens
    # Number of documents that differ from another one only in unknown tokens, so that both have the same vector.
    indistinct_documents: int = Field(ge=0)
    queries: int = Field(ge=0)  # number of labelled queries
    truncated_queries: int = Field(ge=0)  # number of queries longer than the encoder reads
    unreadable_queries: int = Field(ge=0)  # number of queries whose text is mostly unknown tokens
    trained_similarity: TrainedSimilarity | None = None  # similarity that the encoder was trained for; None for cosine

    @property
    def is_notable(self) -> bool:
        """True if there is any problem."""
        counts = (self.unreadable_documents, self.indistinct_documents, self.truncated_queries, self.unreadable_queries)
        return any(counts) or self.trained_similarity is not None


class QuerySetRecord(Record):
    """The quality of the answerable queries of a data set."""

    clusters: int  # number of clusters of queries that share relevant documents
    # Number of independent queries with the same information, by the intra_cluster_correlation.
    effective_sample_size: float
    # Correlation of accuracy within clusters, 0…1; None if accuracy never varies, and then the worst case, 1, is
    # assumed.
    intra_cluster_correlation: float | None = None
    accuracy_by_cluster: Interval  # accuracy with the resulting interval
    # Mean distance of the distinct relevant documents; None, like the next three, if there are too few.
    cosine_distance: float | None = None
    topics: int | None = None  # number of topics of the distinct relevant documents
    silhouette: float | None = None  # silhouette of these topics
    topic_entropy: float | None = None
    duplicate_queries: int  # number of queries whose text occurred before
    warnings: list[str]  # warnings as sentences


class AgainstChance(Record):
    """Accuracy@K of all answerable queries without a cut, compared with that of K random documents."""

    accuracy: float
    lower: float  # exact one-sided limit, by query (Clopper and Pearson)
    chance: float  # accuracy of a random draw: K/N for a query with one relevant document among N, at most 1
    confidence: float
    # Approximate number of answerable queries with the same accuracy that would bring the limit above chance; None if
    # it is above already or no number suffices.
    queries_needed: int | None = None

    @property
    def shown(self) -> bool:
        """Whether accuracy is shown to be above chance; true if there are at most K documents, as chance is 1 then."""
        return self.chance >= 1 or self.lower > self.chance


class BiasRecord(Interval):
    """Expected accuracy on generated queries minus accuracy on human ones, for a data set without this measurement.

    The mean is over public data sets; the limits are a 95 % prediction interval for one further data set.
    """

    sets: int  # number of public data sets
    # The same difference for the accuracy that is lost to τ. Below 0, τ loses more answers of people than of generated
    # queries.
    loss: Interval


class CalibrationRecord(Record):
    """The amount of evidence behind a release."""

    state: State  # state of the release: provisional if there is any reason, inherited if a promise is withdrawn
    reasons: list[StateReason]  # reasons for a provisional state
    human: int  # number of answerable queries of people
    generated: int  # number of generated answerable queries
    # Figures on generated queries minus those on human ones; None without generated queries, or if a language model
    # wrote any, because the bias was measured on crops only.
    bias: BiasRecord | None = None
    accuracy: AgainstChance  # accuracy compared with chance

    def because(self, k: int) -> str:
        """Return why the release is provisional and what would make it calibrated; empty if it is calibrated."""
        return why_provisional(self.reasons, self.human, self.generated, k)

    def chance_warning(self, k: int) -> str | None:
        """Return why accuracy is not above chance and what to do; None if it is above."""
        accuracy = self.accuracy
        if accuracy.shown:
            return None
        count = self.human + self.generated
        queries = f"{count:,} answerable {'query' if count == 1 else 'queries'}"
        remedy = "check the qrels, or give another --encoder"
        if accuracy.queries_needed is not None:
            remedy = f"label about {accuracy.queries_needed:,} queries, which at this accuracy would show it"
        return (
            f"accuracy@{k} is {accuracy.accuracy:.3f} on {queries} and may be as low as {accuracy.lower:.3f} (lower "
            f"{100 * accuracy.confidence:.4g} % limit), which is not above the {accuracy.chance:.3f} that {k} "
            f"documents drawn at random get; {remedy}"
        )


def why_provisional(reasons: Collection[StateReason], human: int, generated: int, k: int) -> str:
    """Explain why a release is provisional, and what would make it calibrated.

    Returns clauses without a full stop; empty without a reason.
    """
    too_few_queries = "few_queries" in reasons
    clauses = []
    if "generated_queries" in reasons and not generated:
        clauses.append(
            "the encoder was adapted, and no query that a person asked has shown that it is better; label questions "
            "that people asked, and adapt it again with their split as --eval-split"
        )
    elif "generated_queries" in reasons:
        clauses.append(_generated(human, generated))
        clauses.append(
            f"label {MIN_QUERIES} or more questions that people asked, in qrels/human.tsv, and calibrate again with "
            "--labels human"
            if too_few_queries
            else f"put the {human:,} queries of people into a split of their own, and calibrate again with --split NAME"
        )
    if too_few_queries and not generated:
        clauses.append(
            f"it has {human} answerable {'query' if human == 1 else 'queries'}, and {MIN_QUERIES} are the fewest to "
            f"rely on; label {MIN_QUERIES - human} more"
        )
    if "few_documents" in reasons:
        clauses.append(
            f"the corpus has no more documents than K = {k}, so that every query finds its answer and accuracy proves "
            "nothing; give a smaller --k, or calibrate on the whole corpus"
        )
    return "; ".join(clauses)


def _generated(human: int, generated: int) -> str:
    if human:
        return f"{generated:,} of {human + generated:,} answerable queries were generated, not asked by people"
    if generated == 1:
        return "the only answerable query was generated, not asked by a person"
    return f"all {generated:,} answerable queries were generated, none was asked by a person"
