"""The public sets that the checks of labels are tried on, and which of them had a say in the limits."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.generated.sets import SETS, PublicSet

# medquad is left out: its 15,811 documents take half an hour to encode.
TRIED = tuple(each for each in SETS if not each.large)
# The limits and orders were chosen on these, and on no other.
CHOSEN_ON = frozenset({"cosqa", "covidqa_chunks", "pubmedqa_labelled", "scifact", "squad_v2_dev"})


@dataclass(frozen=True)
class LabelCheckPlan:
    """The plan of one run.

    Attributes:
        data: Folder of the data sets.
        sets: Those to measure.
        draws: Of labels that are moved.
        seed: Of every random choice.
    """

    data: Path
    sets: Sequence[PublicSet]
    draws: int
    seed: int

    @contextmanager
    def copied(self, public: PublicSet) -> Iterator[Path]:
        """Copy a set to a folder that is gone afterwards, with the judgements of all splits in the split `human`."""
        with tempfile.TemporaryDirectory() as scratch:
            yield public.copy(self.data, Path(scratch))


def had_a_say(name: str) -> str:
    """Say of a set whether the limits were chosen on it."""
    return "chosen on" if name in CHOSEN_ON else "unseen"


def spool_in(folder: Path, name: str) -> Path:
    """Make an empty folder beside a data set.

    Args:
        name: Of the folder.
    """
    spool = folder.parent / f"spool-{name}"
    shutil.rmtree(spool, ignore_errors=True)
    spool.mkdir()
    return spool
