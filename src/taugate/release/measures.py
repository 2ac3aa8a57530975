"""The papers' measures of an encoder before and after an adaptation; part of adaptation.json."""

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from taugate.release.evidence import Interval, IsotropyRecord, Record


class EncoderRow(Record):
    """One encoder on the unseen queries, a row of the thresholds paper's Table 6.

    Attributes:
        name: "base", or the recipe.
        accuracy: accuracy@K, bootstrapped.
        ndcg: NDCG@K.
        coe: Correct overlap (COE), as in the calibration.
        roe: Random overlap (ROE), as in the calibration.
        tau: τ(ψ) by the papers' rule.
        psi: ψ.
        accuracy_at_tau: accuracy@K of the results that reach τ.
        isotropy: Isotropy of the documents.
    """

    name: str
    accuracy: Interval
    ndcg: Interval
    coe: Interval
    roe: Interval
    tau: float
    psi: int
    accuracy_at_tau: Interval
    isotropy: IsotropyRecord


class Distances(Record):
    """Δ_M of one encoder (thresholds paper §2.6): the distances of documents from the nearest general text.

    Attributes:
        mean: Mean distance of all documents.
        counts: Numbers of documents in equal bins from 0 to 2, the largest distance of unit vectors.
        general: Mean distance of a general text from the nearest other one, as a scale of the whole space.
    """

    mean: float
    counts: list[int] = Field(repr=False)
    general: float

    @property
    def relative(self) -> float | None:
        """Return the mean distance relative to that between general texts; None if these coincide."""
        return self.mean / self.general if self.general > 0 else None


class SeparationRecord(Record):
    """The separation of the domain from general text.

    Attributes:
        moved_away: Share of the documents whose distance from the nearest general text has grown.
    """

    before: Distances
    after: Distances
    moved_away: float

    @model_validator(mode="after")
    def _same_bins(self) -> Self:
        if not 0 < len(self.before.counts) == len(self.after.counts):
            raise PydanticCustomError("bins", "before and after have different bins")
        return self


class FamiliarityRecord(Record):
    """Domain familiarity: mean similarity of unseen queries with paraphrases of them (query embeddings paper, eq. 6).

    Attributes:
        queries: Number of queries.
        paraphrases: Number of paraphrases per query.
        source: Author of the paraphrases: rules or a language model.
        writer: Language of the rules, None if they do not support it, or name of the model.
    """

    before: float
    after: float
    queries: int
    paraphrases: int
    source: Literal["rules", "llm"]
    writer: str | None = None


class PowerLawRecord(Record):
    """The power law in the tail of the documents' spectrum (query embeddings paper, Appendix A).

    Attributes:
        beta: Exponent with its 95 % interval of least squares.
        r_squared: R² on log–log scales.
        p: p-value of the Kolmogorov–Smirnov distance, by parametric bootstrap.
        first: First rank of the tail.
        last: Last rank of the tail.
        whole: Exponent over all ranks.
    """

    beta: Interval
    r_squared: float
    p: float
    first: int
    last: int
    whole: float


class SpectrumRecord(Record):
    """The power law before and after; None if the documents vary in fewer than ten directions."""

    before: PowerLawRecord | None = None
    after: PowerLawRecord | None = None


class PairedChange(Record):
    """A metric before and after on the same queries.

    Attributes:
        change: After − before, with one-sided 95 % limits on either side.
    """

    before: float
    after: float
    change: Interval


class ForgettingRecord(Record):
    """The change on the general set, which has everyday questions outside the domain.

    Attributes:
        questions: Number of questions.
        accuracy: accuracy@1.
        ndcg: NDCG@10.
    """

    questions: int
    accuracy: PairedChange
    ndcg: PairedChange

    @property
    def lost(self) -> bool:
        """Whether NDCG@10 is shown to be lower."""
        return self.ndcg.change.upper < 0


class MeasuresRecord(Record):
    """The papers' measures before and after.

    Attributes:
        k: K of the rows.
        rows: Base encoder, then the tried recipes.
    """

    k: int
    rows: list[EncoderRow]
    separation: SeparationRecord
    familiarity: FamiliarityRecord
    spectrum: SpectrumRecord
    forgetting: ForgettingRecord

    def row(self, name: str) -> EncoderRow | None:
        """Return the row of the base encoder or of a recipe; None if there is none."""
        return next((row for row in self.rows if row.name == name), None)
