"""The methods that choose a threshold, and the statements that they make about the loss."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Method = Literal["bootstrap", "non-inferiority", "risk-control", "fixed"]
Statement = Literal["high-probability", "expected-loss"]


@dataclass(frozen=True)
class ThresholdMethod:
    """A method that chooses a threshold.

    Attributes:
        title: Its name.
        statements: The statements that it can make, its default first; empty if it guarantees nothing.
        of_papers: Whether it is the papers' rule.
        paired: Whether it compares each query with and without the cut.
        few_labels: Whether few labels can take the place of its certificate.
    """

    title: str
    statements: tuple[Statement, ...] = ()
    of_papers: bool = False
    paired: bool = False
    few_labels: bool = False

    @property
    def certifies(self) -> bool:
        """Whether it guarantees anything."""
        return bool(self.statements)

    def name(self, statement: str | None) -> str:
        """Return its name, with the statement that it makes if it can make several."""
        chosen = "" if statement is None or len(self.statements) < 2 else f", {STATEMENTS[statement].words}"
        return f"{self.title}{chosen}"


@dataclass(frozen=True)
class LossStatement:
    """A statement that the loss is small.

    Attributes:
        words: How it holds.
        loss: The loss that it limits.
        on_average: Whether it limits the loss on average, so that it has no confidence.
        by_test: Whether a test of the loss of every labelled query certifies it.
        of_cut_alone: Whether it never counts queries that are refused as a whole.
    """

    words: str
    loss: str = "loss"
    on_average: bool = False
    by_test: bool = False
    of_cut_alone: bool = False


METHODS: Mapping[Method, ThresholdMethod] = {
    "bootstrap": ThresholdMethod("The papers' rule (bootstrap)", of_papers=True),
    "non-inferiority": ThresholdMethod("Paired non-inferiority", ("high-probability",), paired=True),
    "risk-control": ThresholdMethod("Risk control", ("high-probability", "expected-loss"), few_labels=True),
    "fixed": ThresholdMethod("A given threshold"),
}
STATEMENTS: Mapping[str, LossStatement] = {
    "high-probability": LossStatement("with high probability", by_test=True),
    "expected-loss": LossStatement("on average", "expected loss", on_average=True),
    "labels": LossStatement("from few labels", of_cut_alone=True),
}
