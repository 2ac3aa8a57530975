"""The papers' measures of an encoder before and after an adaptation; part of adaptation.json."""

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from taugate.release.evidence import Interval, IsotropyRecord, Record


class EncoderRow(Record):
    """One encoder on the unseen queries, a row of the thresholds paper's Table 6."""

    name: str  # "base", or the recipe
    accuracy: Interval  # accuracy@K, bootstrapped
    ndcg: Interval
    coe: Interval  # correct overlap (COE), as in the calibration
    roe: Interval  # random overlap (ROE), as in the calibration
    tau: float  # τ(ψ) by the papers' rule
    psi: int
    accuracy_at_tau: Interval  # accuracy@K of the results that reach τ
    isotropy: IsotropyRecord


class Distances(Record):
    """Δ_M of one encoder (thresholds paper §2.6): the distances of documents from the nearest general text."""

    mean: float
    # Numbers of documents in equal bins from 0 to 2, the largest distance of unit vectors.
    counts: list[int] = Field(repr=False)
    general: float  # mean distance of a general text from the nearest other one, as a scale of the whole space

    @property
    def relative(self) -> float | None:
        """Return the mean distance relative to that between general texts; None if these coincide."""
        return self.mean / self.general if self.general > 0 else None


class SeparationRecord(Record):
    """The separation of the domain from general text."""

    before: Distances
    after: Distances
    moved_away: float  # share of the documents whose distance from the nearest general text has grown

    @model_validator(mode="after")
    def _same_bins(self) -> Self:
        if not 0 < len(self.before.counts) == len(self.after.counts):
            raise PydanticCustomError("bins", "before and after have different bins")
        return self


class FamiliarityRecord(Record):
    """Domain familiarity: mean similarity of unseen queries with their paraphrases (query embeddings paper, eq. 6)."""

    before: float
    after: float
    queries: int
    paraphrases: int  # number of paraphrases per query
    source: Literal["rules", "llm"]  # author of the paraphrases: rules or a language model
    writer: str | None = None  # language of the rules, None if they do not support it, or name of the model


class PowerLawRecord(Record):
    """The power law in the tail of the documents' spectrum (query embeddings paper, Appendix A)."""

    beta: Interval  # exponent with its 95 % interval of least squares
    r_squared: float  # R² on log–log scales
    p: float  # p-value of the Kolmogorov–Smirnov distance, by parametric bootstrap
    first: int  # first rank of the tail
    last: int  # last rank of the tail
    whole: float  # exponent over all ranks


class SpectrumRecord(Record):
    """The power law before and after; None if the documents vary in fewer than ten directions."""

    before: PowerLawRecord | None = None
    after: PowerLawRecord | None = None


class PairedChange(Record):
    """A metric before and after on the same queries."""

    before: float
    after: float
    change: Interval  # after − before, with one-sided 95 % limits on either side


class ForgettingRecord(Record):
    """The change on the general set, which has everyday questions outside the domain."""

    questions: int
    accuracy: PairedChange  # accuracy@1
    ndcg: PairedChange  # NDCG@10

    @property
    def lost(self) -> bool:
        """Whether NDCG@10 is shown to be lower."""
        return self.ndcg.change.upper < 0


class MeasuresRecord(Record):
    """The papers' measures before and after."""

    k: int  # K of the rows
    rows: list[EncoderRow]  # base encoder, then the tried recipes
    separation: SeparationRecord
    familiarity: FamiliarityRecord
    spectrum: SpectrumRecord
    forgetting: ForgettingRecord

    def row(self, name: str) -> EncoderRow | None:
        """Return the row of the base encoder or of a recipe; None if there is none."""
        return next((row for row in self.rows if row.name == name), None)
