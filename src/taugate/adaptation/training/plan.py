"""What a budget pays for, fixed before the first step and kept: a killed adaptation follows the plan it began with.

Recipes are paid for cheapest first. Each costs its steps, and what follows them: exporting the encoder, encoding the
corpus again, and fitting the linear maps on top. One that the rest of the budget does not pay for is left out, and the
plan says why.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from taugate.errors import InputError
from taugate.retrieval.release.adaptation import RecipeName
from taugate.retrieval.release.evidence import Record
from taugate.storage.files import atomic_write, read_bounded

_PLAN = "plan.json"
_MAX_BYTES = 1 << 20
# Of the time that is left is planned for: the rest is for steps that are slower than those that were timed. Chosen, not
# measured.
_SAFETY = 0.8
MIN_STEPS = 16  # with fewer, most would be spent on warming up
BATCHES = (256, 128, 64, 32)  # of fine-tuning: that of the paper, else the largest that leaves enough steps
_EPOCHS = 3  # at most, so that pairs are not learned by heart; not tuned


class NothingToLearn(InputError):
    """A recipe finds no text or no pair in the data set that it could learn from; another recipe may."""


@dataclass(frozen=True)
class TextSeconds:
    """Encoding time per text, in seconds: of a document, and of a query, which is much shorter."""

    document: float
    query: float

    def of(self, documents: int, queries: int) -> float:
        """Return the seconds that so many documents and queries take."""
        return documents * self.document + queries * self.query


class StagePlan(Record):
    """Steps of a stage, and examples of each."""

    steps: int
    batch: int


class TrainingPlan(Record):
    """What an adaptation will do.

    Attributes:
        work: Digest of everything that decides on its result.
        adapter_steps: Of the adapter.
        bfloat16: Whether products are computed in it.
        stages: That are trained, by recipe.
        merge_weights: That are tried.
        left_out: Recipes that are not tried, and why.
    """

    work: str
    adapter_steps: int
    bfloat16: bool
    stages: dict[RecipeName, StagePlan]
    merge_weights: list[float]
    left_out: dict[str, str]

    @classmethod
    def read(cls, folder: Path, work: str) -> Self | None:
        """Read the plan of a killed run; None where there is none.

        Args:
            folder: Of the unfinished work.
            work: Digest of what is to be done now.

        Raises:
            InputError: Where the folder is of other work, as what is there must not be used for this.
        """
        try:
            found = cls.model_validate_json(read_bounded(folder / _PLAN, _MAX_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, ValidationError):
            found = None
        if found is None or found.work != work:
            raise InputError(
                f"{folder}: has unfinished work of another command, base encoder, data set or version; repeat that "
                "command, or remove the folder to begin anew"
            )
        return found

    def write(self, folder: Path) -> None:
        """Write the plan, in one step.

        Args:
            folder: Of the unfinished work, made where needed.

        Raises:
            OSError: .
        """
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / _PLAN, (self.model_dump_json(indent=2) + "\n").encode())


@dataclass
class Purse:
    """Seconds that are left, spent on one recipe after the other.

    Attributes:
        seconds: Left to spend.
        after: Seconds that follow the steps of every recipe.
        left_out: Recipes that were too dear, and why, filled by `buy`.
    """

    seconds: float
    after: float
    left_out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, seconds: float, after: float) -> Self:
        """Return a purse with a part of the time that is left.

        Args:
            seconds: Those.
            after: See the class.
        """
        return cls(_SAFETY * seconds, after)

    def pays(self, seconds: float) -> bool:
        """Say whether a recipe could be bought whose steps and preparation take some seconds."""
        return self.seconds >= self.after + seconds

    def leave_out(self, recipe: str) -> None:
        """Note that what is left does not pay for any step of a recipe.

        Args:
            recipe: Its name.
        """
        self.left_out[recipe] = (
            f"{max(0.0, self.seconds):.0f} seconds of the budget are left, and encoding the corpus again takes "
            f"{self.after:.0f}"
        )

    def buy(self, recipe: str, example: float, once: float, batches: tuple[int, ...], most: int) -> StagePlan | None:
        """Spend what a recipe needs, and return its steps; None where too few of them can be paid for.

        Args:
            recipe: Its name.
            example: Seconds of one example of a step.
            once: Seconds before the first step.
            batches: Examples of a step, the preferred one first.
            most: Examples that are worth learning from.
        """
        left = self.seconds - self.after - once
        for batch in batches:
            steps = min(int(left / (example * batch)), max(MIN_STEPS, -(-_EPOCHS * most // batch)))
            if steps >= MIN_STEPS:
                self.seconds -= self.after + once + steps * batch * example
                return StagePlan(steps=steps, batch=batch)
        self.left_out[recipe] = (
            f"{max(0.0, left):.0f} seconds of the budget are left for its steps, and {MIN_STEPS} steps take "
            f"{MIN_STEPS * batches[-1] * example:.0f}"
        )
        return None
