"""What the papers measure of an encoder before and after an adaptation; a part of adaptation.json."""

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from taugate.retrieval.release.evidence import Interval, IsotropyRecord, Record


class EncoderRow(Record):
    """One encoder on the unseen queries, as a row of the thresholds paper's Table 6.

    Attributes:
        name: "base", or the recipe.
        accuracy: accuracy@K, bootstrapped.
        ndcg: NDCG@K.
        coe: As calibration defines them.
        roe: As calibration defines them.
        tau: τ(ψ) of the papers' rule.
        psi: ψ.
        accuracy_at_tau: accuracy@K of what reaches τ.
        isotropy: Of the documents.
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
    """Δ_M of one encoder (thresholds paper §2.6): how far each document is from the nearest general text.

    Attributes:
        mean: Of all documents.
        counts: Of documents in bins of one width, from 0 to 2, which is as far apart as unit vectors can be.
        general: Mean distance of a general text from the nearest other one, which says how wide the whole space is.
    """

    mean: float
    counts: list[int] = Field(repr=False)
    general: float

    @property
    def relative(self) -> float | None:
        """Return the mean distance in units of that between general texts; None where these are all one."""
        return self.mean / self.general if self.general > 0 else None


class SeparationRecord(Record):
    """The separation of the domain from general text.

    Attributes:
        moved_away: Share of the documents that are further from the nearest general text than before.
    """

    before: Distances
    after: Distances
    moved_away: float

    @model_validator(mode="after")
    def _same_bins(self) -> Self:
        if not 0 < len(self.before.counts) == len(self.after.counts):
            raise PydanticCustomError("bins", "before and after have other bins")
        return self


class FamiliarityRecord(Record):
    """Domain familiarity: mean similarity of unseen queries with paraphrases of them (query embeddings paper, eq. 6).

    Attributes:
        queries: How many, and of each.
        paraphrases: How many, and of each.
        source: Rules, or a language model, wrote the paraphrases.
        writer: The language of the rules, None where they do not know it; the name of the model.
    """

    before: float
    after: float
    queries: int
    paraphrases: int
    source: Literal["rules", "llm"]
    writer: str | None


class PowerLawRecord(Record):
    """The power law in the tail of the documents' spectrum (query embeddings paper, Appendix A).

    Attributes:
        beta: Exponent, with its 95 % interval of least squares.
        r_squared: On log–log scales.
        p: Of the Kolmogorov–Smirnov distance, by parametric bootstrap.
        first: Ranks of the tail.
        last: Ranks of the tail.
        whole: Exponent of all ranks, from the first on.
    """

    beta: Interval
    r_squared: float
    p: float
    first: int
    last: int
    whole: float


class SpectrumRecord(Record):
    """The power law before and after; None where the documents vary in fewer than ten directions."""

    before: PowerLawRecord | None
    after: PowerLawRecord | None


class PairedChange(Record):
    """A metric before and after on the same queries.

    Attributes:
        change: After − before, with one-sided 95 % limits either side.
    """

    before: float
    after: float
    change: Interval


class ForgettingRecord(Record):
    """What the encoder lost, or gained, on the general set: everyday questions that have nothing to do with the domain.

    Attributes:
        questions: How many.
        accuracy: accuracy@1.
        ndcg: NDCG@10.
    """

    questions: int
    accuracy: PairedChange
    ndcg: PairedChange

    @property
    def lost(self) -> bool:
        """Tell whether NDCG@10 is shown to be lower."""
        return self.ndcg.change.upper < 0


class MeasuresRecord(Record):
    """What the papers measure, before and after.

    Attributes:
        k: K of the rows.
        rows: The base encoder, then each recipe that was tried.
    """

    k: int
    rows: list[EncoderRow]
    separation: SeparationRecord
    familiarity: FamiliarityRecord
    spectrum: SpectrumRecord
    forgetting: ForgettingRecord

    def row(self, name: str) -> EncoderRow | None:
        """Return the row of the base encoder or of a recipe; None where it has none."""
        return next((row for row in self.rows if row.name == name), None)
