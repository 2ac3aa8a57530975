"""The state of a release: calibrated on enough human judgements or provisional, and accuracy that chance does not give.

Both are asked of every release that is to be promoted (`registry/promotion.py`).
"""

from typing import Literal

from taugate.retrieval.release.evidence import Record

State = Literal["calibrated", "provisional"]
StateReason = Literal["generated_queries", "few_queries", "few_documents"]

# With 30, accuracy is known to ± .18 at worst (1.96·√(.25 / 30)): more than one encoder differs from the next.
FEWEST_QUERIES = 30


class AgainstChance(Record):
    """Accuracy@K without a cut, of all answerable queries, compared with that of K documents drawn at random.

    accuracy: that was measured. lower: its exact one-sided limit, by query (Clopper and Pearson). chance: the accuracy
    of a random draw, K/N for a query with one relevant document among N, at most 1. confidence: of the limit.
    queries_needed: about so many answerable queries with the same accuracy would bring the limit above chance; None
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


class CalibrationRecord(Record):
    """How much evidence a release rests on.

    state: provisional for any of the reasons. reasons: why it is provisional, else empty. human, generated: how many
    answerable queries come from people, and from a generator. bias: accuracy on generated queries less accuracy on
    human ones, not yet measured. accuracy: compared with chance.
    """

    state: State
    reasons: list[StateReason]
    human: int
    generated: int
    bias: None = None
    accuracy: AgainstChance

    def because(self, k: int) -> str:
        """Say why the release is provisional, and what would make it calibrated; empty where it is calibrated."""
        words: dict[StateReason, str] = {
            "generated_queries": f"{self.generated:,} of its queries were generated; label queries of people",
            "few_queries": (
                f"it has {self.human} answerable {'query' if self.human == 1 else 'queries'}, and "
                f"{FEWEST_QUERIES} are the fewest to rely on; label {FEWEST_QUERIES - self.human} more"
            ),
            "few_documents": (
                f"the corpus has no more documents than K = {k}, so that every query finds its answer and accuracy "
                "proves nothing; give a smaller --k, or calibrate on the whole corpus"
            ),
        }
        return "; ".join(words[reason] for reason in self.reasons)

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
