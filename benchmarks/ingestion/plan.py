"""What a run of the page's command was asked for."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ImportPlan:
    """What a run was asked for.

    work: an empty folder. files: how many odd files. seed: of what is garbled in them, and of what is sampled.
    delimited_files: of a corpus and dialect. mutated_files: of a kind.
    """

    work: Path
    files: int
    seed: int
    delimited_files: int
    mutated_files: int
