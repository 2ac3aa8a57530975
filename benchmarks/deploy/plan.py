"""The plan of one run of the container tables."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ContainerPlan:
    """The settings that a section of the page needs.

    Attributes:
        work: A folder that is removed afterwards.
        starts: How often the service is started, each time in a new container.
    """

    work: Path
    starts: int
