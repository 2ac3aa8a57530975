"""Records of a manifest beside the policy: the gate, abstention, the query set, and whether it is enough."""

from collections.abc import Collection
from typing import Literal, Self

import numpy as np
from pydantic import Field, FiniteFloat, model_validator
from pydantic_core import PydanticCustomError

from taugate.retrieval.release.evidence import EvidenceRecord, Interval, Record

State = Literal["calibrated", "provisional"]
StateReason = Literal["generated_queries", "few_queries", "few_documents"]
Verdict = Literal["admitted", "worse", "cannot tell"]
# Whose mean loss was shown to be below the margin. That of the average document bounds each document's share, however
# many queries it has.
GateStatement = Literal["query", "document", "document and query"]

# With 30, accuracy is known to ± .18 at worst (1.96·√(.25 / 30)): more than one encoder differs from the next.
MIN_QUERIES = 30


class PairedLoss(Record):
    """A metric of the baseline and of a candidate on the same queries.

    Attributes:
        baseline: Means of the metric.
        candidate: Means of the metric.
        loss: Baseline − candidate, of the average unit, with its limits, each one-sided at the gate's confidence.
        p: p-value of a loss of the margin or more.
    """

    baseline: float
    candidate: float
    loss: Interval
    p: float


class ProjectionRecord(Record):
    """The projection in force.

    Attributes:
        kind: How it was fitted.
        retention: r as asked for or chosen.
        dimension: d' of the vectors afterwards.
        queries: How many it was fitted on.
        rank: Components that these have.
        explained_variance: Share of the queries' variance that is kept.
        folds: Of the cross-validation that the gate judged.
    """

    kind: Literal["query-pca"] = "query-pca"
    retention: float
    dimension: int
    queries: int
    rank: int
    explained_variance: float
    folds: int


class GateRecord(Record):
    """A candidate of the gate, admitted or not.

    Attributes:
        candidate: Its name.
        kind: What it changes.
        admitted: Whether it was.
        accuracy: Its losses.
        ndcg: Its losses.
        p_adjusted: p-value of the worse of the two metrics, adjusted for all candidates tried.
        margin: The largest loss that is allowed.
        confidence: Of the decision.
        n: Queries.
        clusters: Of queries that share a document.
        verdict: "worse" where the loss found is the margin or more.
        evidence: What counts as one draw.
        statement: Whose mean loss is below the margin.
        least: The smallest loss that these queries could have excluded, of a candidate that changes nothing.
        queries_needed: So many like these would tell, where these cannot.
        gain: What the candidate saves, each figure with that of the same without it, in the same run.
    """

    candidate: str
    kind: str
    admitted: bool
    accuracy: PairedLoss
    ndcg: PairedLoss
    p_adjusted: float
    margin: float
    confidence: float
    n: int
    clusters: int
    verdict: Verdict | None = None
    evidence: EvidenceRecord | None = None
    statement: GateStatement | None = None
    least: float | None = None
    queries_needed: int | None = None
    gain: dict[str, float]


class ErrorLimit(Record):
    """A limit on one of the two errors of refusing queries.

    Attributes:
        asked: The largest share that was asked for, None where none was.
        upper: The limit that holds with the record's confidence.
        found: The share among the queries that certify it.
        queries: How many those are.
        queries_needed: Fewer cannot certify `asked`, even with no error among them.
        evidence: What counts as one draw.
    """

    asked: float | None
    upper: float
    found: float
    queries: int
    queries_needed: int | None
    evidence: EvidenceRecord


class ScoreCandidate(Record):
    """A score that was considered for refusing queries, measured on queries that it was not fitted on.

    Attributes:
        name: Of the score.
        auroc: Probability that an answerable query's score is above an unanswerable one's; ties count half.
        answered: Share of the unanswerable queries answered at the threshold that refuses the asked share of answerable
            ones.
        standard_error: Of `answered`.
    """

    name: str
    auroc: float
    answered: float
    standard_error: float


class TradeOff(Record):
    """A trade-off between the two errors: upper limits, with the record's confidence for this pair by itself.

    Attributes:
        empty: Share of answerable queries refused.
        answered: The smallest share of unanswerable ones answered with it.
    """

    empty: float
    answered: float


class AbstentionRecord(Record):
    """The rule by which a query as a whole is refused: its score is below tau, compared in float32.

    Attributes:
        score: Its name.
        tau: The threshold.
        certified: Whether every limit asked for is.
        answered_unanswerable: Limit on the share of unanswerable queries answered.
        empty_answerable: Limit on the share of answerable queries refused.
        confidence: Of both together.
        guarantee: One plain sentence.
        least_empty: Upper limit of the share of answerable queries refused at the smallest tau that certifies the limit
            on answers, None where none does.
        candidates: The scores considered.
        tradeoff: By share refused, ascending.
    """

    score: str
    tau: FiniteFloat
    certified: bool
    answered_unanswerable: ErrorLimit
    empty_answerable: ErrorLimit
    confidence: float
    guarantee: str
    least_empty: float | None
    candidates: list[ScoreCandidate]
    tradeoff: list[TradeOff]

    @model_validator(mode="after")
    def _tau_is_a_float32(self) -> Self:
        if abs(self.tau) > float(np.finfo(np.float32).max):
            raise PydanticCustomError("tau", "tau is beyond float32, in which it is compared")
        return self


class NoAnswerRecord(Record):
    """The share of queries without an answer in the corpus that still get a result from the policy in force.

    Attributes:
        asked: Which queries: labelled unanswerable ones, or the off-topic ones that come with Taugate, which are the
            easy cases, so that `answered` is an optimistic estimate.
        queries: How many.
        answered: The share.
        upper: One-sided 95 % limit of it.
        evidence: What counts as one draw.
    """

    asked: Literal["unanswerable", "off_topic"]
    queries: int
    answered: float
    upper: float
    evidence: EvidenceRecord


TrainedSimilarity = Literal["dot", "euclidean", "manhattan"]


class EncoderFitRecord(Record):
    """What is wrong between the encoder and the texts of the data set.

    Attributes:
        documents: How many were looked at, evenly spread; all of a corpus of 5,000 or fewer.
        unreadable_documents: Most of whose text is unknown tokens.
        indistinct_documents: That differ from another document only in unknown tokens, so that both have one vector.
        queries: Labelled ones.
        truncated_queries: Longer than the encoder reads.
        unreadable_queries: As of documents.
        trained_similarity: What the encoder was trained for, None for cosine.
    """

    documents: int = Field(ge=1)
    unreadable_documents: int = Field(ge=0)
    indistinct_documents: int = Field(ge=0)
    queries: int = Field(ge=0)
    truncated_queries: int = Field(ge=0)
    unreadable_queries: int = Field(ge=0)
    trained_similarity: TrainedSimilarity | None

    @property
    def is_notable(self) -> bool:
        """True if anything was found."""
        counts = (self.unreadable_documents, self.indistinct_documents, self.truncated_queries, self.unreadable_queries)
        return any(counts) or self.trained_similarity is not None


class QuerySetRecord(Record):
    """The quality of the answerable queries of a data set.

    Attributes:
        clusters: Of queries that share relevant documents.
        effective_sample_size: Independent queries that they are worth, by the intra_cluster_correlation.
        intra_cluster_correlation: Of accuracy, 0…1; None where accuracy never varies, and then the worst, 1, is
            assumed.
        accuracy_by_cluster: Accuracy with the interval that follows.
        cosine_distance: Diversity of the distinct relevant documents, None where there are too few.
        topics: Diversity of the distinct relevant documents, None where there are too few.
        silhouette: Diversity of the distinct relevant documents, None where there are too few.
        topic_entropy: Diversity of the distinct relevant documents, None where there are too few.
        duplicate_queries: Those whose text occurred before.
        warnings: Sentences for people.
    """

    clusters: int
    effective_sample_size: float
    intra_cluster_correlation: float | None
    accuracy_by_cluster: Interval
    cosine_distance: float | None
    topics: int | None
    silhouette: float | None
    topic_entropy: float | None
    duplicate_queries: int
    warnings: list[str]


class AgainstChance(Record):
    """Accuracy@K without a cut, of all answerable queries, compared with that of K documents drawn at random.

    Attributes:
        accuracy: That was measured.
        lower: Its exact one-sided limit, by query (Clopper and Pearson).
        chance: The accuracy of a random draw, K/N for a query with one relevant document among N, at most 1.
        confidence: Of the limit.
        queries_needed: About so many answerable queries with the same accuracy would bring the limit above chance; None
            where it is above, or where no number would do.
    """

    accuracy: float
    lower: float
    chance: float
    confidence: float
    queries_needed: int | None

    @property
    def shown(self) -> bool:
        """Tell whether accuracy is above chance; with no more documents than K there is nothing to show."""
        return self.chance >= 1 or self.lower > self.chance


class BiasRecord(Interval):
    """Accuracy on generated queries less accuracy on human ones, to expect on a data set where it was not measured.

    Mean: over public data sets. lower, upper: 95 % prediction interval for one further data set.

    Attributes:
        sets: How many there are.
        loss: The same of the accuracy that is lost to τ; below 0, τ costs people more answers than generated queries.
    """

    sets: int
    loss: Interval


class CalibrationRecord(Record):
    """How much evidence a release rests on.

    Attributes:
        state: Provisional for any of the reasons.
        reasons: Why it is provisional, else empty.
        human: How many answerable queries come from people, and from a generator.
        generated: How many answerable queries come from people, and from a generator.
        bias: Figures on generated queries less those on human ones; None without generated ones, and where a language
            model wrote any, as it was measured on crops alone.
        accuracy: Compared with chance.
    """

    state: State
    reasons: list[StateReason]
    human: int
    generated: int
    bias: BiasRecord | None = None
    accuracy: AgainstChance

    def because(self, k: int) -> str:
        """Say why the release is provisional, and what would make it calibrated; empty where it is calibrated.

        Args:
            k: K of the top-K.
        """
        return why_provisional(self.reasons, self.human, self.generated, k)

    def worthless(self, k: int) -> str | None:
        """Say why accuracy is not above chance, and what to do; None where it is above."""
        found = self.accuracy
        if found.shown:
            return None
        asked = self.human + self.generated
        queries = f"{asked:,} answerable {'query' if asked == 1 else 'queries'}"
        more = "check the qrels, or give another --encoder"
        if found.queries_needed is not None:
            more = f"label about {found.queries_needed:,} queries, which at this accuracy would show it"
        return (
            f"accuracy@{k} is {found.accuracy:.3f} on {queries} and may be as low as {found.lower:.3f} (lower "
            f"{100 * found.confidence:.4g} % limit), which is not above the {found.chance:.3f} that {k} documents "
            f"drawn at random get; {more}"
        )


def why_provisional(reasons: Collection[StateReason], human: int, generated: int, k: int) -> str:
    """Say why a release is provisional, and what would make it calibrated.

    Args:
        reasons: Why it is provisional.
        human: Answerable queries of people, and of a generator.
        generated: Answerable queries of people, and of a generator.
        k: K of the top-K.

    Returns:
        Clauses without a full stop; empty without a reason.
    """
    few = "few_queries" in reasons
    found = []
    if "generated_queries" in reasons and not generated:
        found.append(
            "the encoder was adapted, and no query that a person asked has shown that it is better; label questions "
            "that people asked, and adapt it again with their split as --eval-split"
        )
    elif "generated_queries" in reasons:
        found.append(_generated(human, generated))
        found.append(
            f"label {MIN_QUERIES} or more questions that people asked, in qrels/human.tsv, and calibrate again with "
            "--labels human"
            if few
            else f"put the {human:,} queries of people into a split of their own, and calibrate again with --split NAME"
        )
    if few and not generated:
        found.append(
            f"it has {human} answerable {'query' if human == 1 else 'queries'}, and {MIN_QUERIES} are the fewest to "
            f"rely on; label {MIN_QUERIES - human} more"
        )
    if "few_documents" in reasons:
        found.append(
            f"the corpus has no more documents than K = {k}, so that every query finds its answer and accuracy proves "
            "nothing; give a smaller --k, or calibrate on the whole corpus"
        )
    return "; ".join(found)


def _generated(human: int, generated: int) -> str:
    if human:
        return f"{generated:,} of {human + generated:,} answerable queries were generated, not asked by people"
    if generated == 1:
        return "the only answerable query was generated, not asked by a person"
    return f"all {generated:,} answerable queries were generated, none was asked by a person"
