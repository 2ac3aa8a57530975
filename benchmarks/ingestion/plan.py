"""What a run of the page's command was asked for."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ImportPlan:
    """What a run was asked for.

    Attributes:
        work: An empty folder.
        files: How many odd files.
        seed: Of what is garbled in them, and of what is sampled.
        mutated_files: Of a kind.
        shown_files: Files of numbers by each program.
    """

    work: Path
    files: int
    seed: int
    mutated_files: int
    shown_files: int
