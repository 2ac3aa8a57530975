"""The plan of a time budget, fixed before the first step and stored: a killed adaptation resumes with the same plan.

Recipes are planned from the cheapest on. The cost of a recipe is its steps, the export of the encoder, encoding the
corpus again, and fitting the linear maps. A recipe that the remaining budget does not cover is left out, and the plan
says why.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Self

from pydantic import Field, ValidationError

from taugate.errors import InputError
from taugate.release.adaptation import RecipeName
from taugate.release.evidence import Record
from taugate.storage.files import atomic_write, read_bounded

_PLAN = "plan.json"
_MAX_BYTES = 1 << 20
# Planned share of the remaining time, because steps may be slower than the timed ones. Chosen, not measured.
SAFETY = 0.8
MIN_STEPS = 16  # with fewer, most steps would be warm-up
BATCHES = (256, 128, 64, 32)  # batches of fine-tuning: the paper's, else the largest that leaves enough steps
_MAX_EPOCHS = 3  # against overfitting; not tuned


class NothingToLearn(InputError):
    """The data set has no text or pair from which a recipe could learn; another recipe may still work."""


@dataclass(frozen=True)
class TextSeconds:
    """Encoding time in seconds of a document and of a query, which is much shorter."""

    document: float
    query: float

    def of(self, documents: int, queries: int) -> float:
        """Return the encoding time of documents and queries, in seconds."""
        return documents * self.document + queries * self.query


class StagePlan(Record):
    """Number of steps of a stage, and of examples in a step.

    Attributes:
        seconds: Measured seconds of a step; 0 if the steps were given.
    """

    steps: int
    batch: int
    seconds: float = 0.0


class TrainingPlan(Record):
    """The plan of an adaptation.

    Attributes:
        after: Seconds needed after the last step of a recipe; 0 if the steps were given.
    """

    work: str
    adapter_steps: int = 0
    bfloat16: bool = False
    stages: dict[RecipeName, StagePlan] = Field(default={})
    merge_weights: list[float] = Field(default=[])
    left_out: dict[str, str] = Field(default={})
    after: float = 0.0

    @staticmethod
    def exists(folder: Path) -> bool:
        """Return whether a folder has the plan of a killed run."""
        return (folder / _PLAN).is_file()

    @classmethod
    def read(cls, folder: Path, work: str) -> Self | None:
        """Read the plan of a killed run; None if there is none."""
        try:
            plan = cls.model_validate_json(read_bounded(folder / _PLAN, _MAX_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, ValidationError):
            plan = None
        if plan is None or plan.work != work:
            raise InputError(
                f"{folder}: has unfinished work of another command, base encoder, data set or version; repeat that "
                "command, or remove the folder to start again"
            )
        return plan

    def write(self, folder: Path) -> None:
        """Write the plan atomically to the folder of the unfinished work, which is created if necessary."""
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / _PLAN, (self.model_dump_json(indent=2) + "\n").encode())


@dataclass
class TimeBudget:
    """The remaining seconds, allocated to one recipe after the other.

    Attributes:
        seconds: Remaining seconds.
        after: Seconds needed after the steps of every recipe.
    """

    seconds: float
    after: float
    left_out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, seconds: float, after: float) -> Self:
        """Budget a safe share of the remaining seconds, with the seconds needed after every recipe."""
        return cls(SAFETY * seconds, after)

    def covers(self, seconds: float) -> bool:
        """Return whether the budget covers a recipe whose steps and preparation take some seconds."""
        return self.seconds >= self.after + seconds

    def leave_out(self, recipe: str) -> None:
        """Record that the remaining budget covers no step of a recipe."""
        self.left_out[recipe] = (
            f"{max(0.0, self.seconds):.0f} seconds of the budget are left, and encoding the corpus again takes "
            f"{self.after:.0f}"
        )

    def allocate(
        self, recipe: str, example: float, once: float, batches: tuple[int, ...], max_examples: int
    ) -> StagePlan | None:
        """Allocate the seconds of a recipe, and return its steps; None if the budget covers too few steps.

        Args:
            example: Seconds per example of a step.
            once: Seconds before the first step.
        """
        left = self.seconds - self.after - once
        for batch in batches:
            steps = min(int(left / (example * batch)), max(MIN_STEPS, -(-_MAX_EPOCHS * max_examples // batch)))
            if steps >= MIN_STEPS:
                self.seconds -= self.after + once + steps * batch * example
                return StagePlan(steps=steps, batch=batch, seconds=batch * example)
        self.left_out[recipe] = (
            f"{max(0.0, left):.0f} seconds of the budget are left for its steps, and {MIN_STEPS} steps take "
            f"{MIN_STEPS * batches[-1] * example:.0f}"
        )
        return None


@dataclass
class Pace:
    """Follows the steps, and ends them while enough time is left for everything that comes after them.

    Attributes:
        after: Seconds needed after the last step, at the speed that was measured before the first one; 0 for no limit.
        seconds: The budget in seconds, None for a number of steps.
        elapsed: Returns the seconds that have passed.
        slower: How many times as long as measured the steps take, at least 1.
    """

    after: float
    seconds: int | None
    elapsed: Callable[[], float]
    slower: float = 1.0

    def covers(self, seconds: float = 0.0) -> bool:
        """Return whether the budget covers some more seconds of steps, and everything after them."""
        return not self.after or self.elapsed() + self.slower * (seconds + self.after) <= (self.seconds or math.inf)

    def of(self, stage: StagePlan) -> Callable[[float], bool]:
        """Return a function that takes the duration of each step, and returns whether the steps have to end."""
        durations: list[float] = []

        def ended(duration: float) -> bool:
            durations.append(duration)
            if stage.seconds:
                self.slower = max(1.0, fmean(durations[1:] or durations) / stage.seconds)  # the first is a warm-up
            return not self.covers(stage.seconds)

        return ended
