"""What one run measures, and the names by which its tables call it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.generated.cases import Case
from benchmarks.generated.sets import PublicSet
from benchmarks.markdown import share
from taugate.retrieval.release.evidence import Interval


@dataclass(frozen=True)
class GeneratedPlan:
    """The plan of one run.

    Attributes:
        data: Folder of the data sets.
        sets: Those to measure.
        encoders: Of each its name in the tables and what `--encoder` takes.
        seed: Of crops, calibrations and intervals.
    """

    data: Path
    sets: Sequence[PublicSet]
    encoders: Sequence[tuple[str, str]]
    seed: int

    @cached_property
    def cases(self) -> list[Case]:
        """Every set with every encoder, large ones with the first alone; measured once for all tables."""
        return [
            Case.measure(self.data, each, encoder, self.seed)
            for place, encoder in enumerate(self.encoders)
            for each in self.sets
            if not (place and each.large)
        ]


def cell(figure: Interval) -> str:
    """Format a mean with its 95 % interval."""
    return f"{share(figure.mean)} ({share(figure.lower)}–{share(figure.upper)})"
