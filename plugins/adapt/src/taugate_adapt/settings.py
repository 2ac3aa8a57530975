"""The settings of an adaptation, the plan of its training, and its unfinished folder, kept after a kill."""

import math
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationError
from pydantic.dataclasses import dataclass

from taugate.calibration.progress import Job
from taugate.calibration.settings import LexicalChoice
from taugate.errors import InputError, TaugateError
from taugate.evidence.options import RELEVANT_FROM, Advice, Options, RelevantFrom, SplitName
from taugate.release.adaptation import RecipeName, RerankerStage
from taugate.release.evidence import Record
from taugate.storage.files import atomic_write, disk_failure, read_bounded
from taugate.storage.folders import exclusive_lock

Recipe = Literal["auto", "whitening", "adapter", "layers", "ft", "pt", "pt-ft", "merge"]
LINEAR = ("whitening", "adapter")  # recipes that need neither a transformer nor the extra `training`
TRAIN = "train"  # split to learn from, if the data set has one
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_MAX_SEED = 2**32 - 1  # limit of the trainers
_BUDGET = re.compile(r"([1-9][0-9]{0,5})([smh]|steps?)")

_LOCK = "lock"


def _budget(text: str) -> str:
    if _BUDGET.fullmatch(text) is None:
        raise ValueError("no budget")
    return text


@dataclass(frozen=True)
class AdaptationSettings(Options):
    """Settings of an adaptation. Constructors raise InputError for an invalid value."""

    stage: Literal["encoder"] | RerankerStage = Field(
        default="encoder",
        description="what to train: the encoder, or a second stage that reranks its results, which is a cross-encoder "
        "(rerank) or its token vectors (late-interaction)",
    )
    recipe: Recipe = Field(
        default="auto", description="recipe to learn; auto tries them in order of cost and keeps the best"
    )
    budget: Annotated[
        Annotated[str, AfterValidator(_budget)],
        Advice("use a whole number and a unit, such as 90s, 10m, 1h or 200steps"),
    ] = Field(
        default="10m",
        description="time limit, from which the numbers of steps are derived; or the steps of each recipe",
    )
    split: SplitName = Field(
        default=None,
        description="split to learn from, a file in qrels/, without .tsv (default: train if there is one, else crops)",
    )
    eval_split: SplitName = Field(
        default=None,
        description="split that decides acceptance (default: test if there is one, else human, else generated)",
    )
    relevant_from: RelevantFrom = Field(default=None, description=RELEVANT_FROM)
    seed: Annotated[int, Advice(f"give a whole number from 0 to {_MAX_SEED}")] = Field(
        default=0, ge=0, le=_MAX_SEED, description="seed of every random choice"
    )
    keep_documents: bool = Field(
        default=False,
        description="with --recipe adapter: keep the base's vectors of documents, so that nothing has to be indexed "
        "again; only queries pass the map",
    )
    lexical: LexicalChoice = Field(
        default="auto",
        description="weight of shared words in the score by which encoders are compared; auto: the best one for "
        "each, if any is shown to help the base encoder; off: the cosine alone",
    )
    paraphrases: Literal["rules", "local", "endpoint"] = Field(
        default="rules",
        description="how ten queries are paraphrased, to measure how well the encoder knows the domain: by rules, or "
        "by a language model on this machine or behind --endpoint",
    )

    def __post_init__(self) -> None:
        if self.stage != "encoder":
            for option, given, default in (
                ("--recipe", self.recipe, "auto"),
                ("--paraphrases", self.paraphrases, "rules"),
            ):
                if given != default:
                    raise InputError(f"{option} {given}: is for encoders; leave it out with --stage {self.stage}")
        if self.keep_documents and self.recipe != "adapter":
            raise InputError(
                f"--keep-documents: works only with --recipe adapter, because --recipe {self.recipe} changes how "
                "documents are encoded; use both options or neither"
            )

    @property
    def seconds(self) -> int | None:
        """Budget in seconds; None if it is a number of steps."""
        amount, unit = self._parts
        return amount * _SECONDS[unit] if unit in _SECONDS else None

    @property
    def steps(self) -> int | None:
        """Steps of each recipe; None if the budget is a time."""
        amount, unit = self._parts
        return None if unit in _SECONDS else amount

    @property
    def _parts(self) -> tuple[int, str]:
        match = _BUDGET.fullmatch(self.budget)
        assert match is not None  # noqa: S101 (validated)
        return int(match[1]), match[2]


@contextmanager
def sole_worker(work: Path, job: Job) -> Iterator[None]:
    """Create the folder, lock it, and remove it at the end.

    After an error or Ctrl-C it is kept if anything has been trained, or if it existed before.
    """
    was_there = work.exists()
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{work}: the unfinished work cannot be written there ({error.strerror or error}); name another folder "
            "with --to"
        ) from error

    def busy(holder: str) -> InputError:
        return InputError(f"{work}: {holder} is adapting there; wait until it ends, or name another folder with --to")

    with exclusive_lock(work / _LOCK, 0, busy):
        try:
            yield
        except BaseException as error:
            if not was_there and not any(path.is_file() for path in work.glob("*/**/*")):
                shutil.rmtree(work, ignore_errors=True)
            elif not isinstance(error, TaugateError):  # a TaugateError says what to do
                job.report(f"the unfinished work is kept in {work}; run the same command to resume")
            raise
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Raise InputError if files of the unfinished work cannot be written to the folder in the `with` block."""
    try:
        yield
    except Exception as error:
        reason = disk_failure(error)
        if reason is None:
            raise
        raise InputError(
            f"{folder}: the unfinished work cannot be written there ({reason}); free some space and repeat the "
            "command, which resumes the work"
        ) from error


_PLAN = "plan.json"
_MAX_BYTES = 1 << 20
# Planned share of the remaining time, because steps may be slower than the timed ones. Chosen, not measured.
SAFETY = 0.8
MIN_STEPS = 16  # with fewer, most steps would be warm-up
BATCHES = (256, 128, 64, 32)  # batches of fine-tuning: the paper's, else the largest that leaves enough steps
_MAX_EPOCHS = 3  # against overfitting; not tuned


class NothingToLearn(InputError):
    """The data set has no text or pair from which a recipe could learn; another recipe may still work."""


@plain_dataclass(frozen=True)
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


@plain_dataclass
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


@plain_dataclass
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
