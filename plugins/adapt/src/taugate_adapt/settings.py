"""The settings of an adaptation, checked before anything is read, and its unfinished folder, kept after a kill."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from taugate.calibration.progress import Job
from taugate.calibration.settings import LexicalChoice
from taugate.errors import InputError, TaugateError
from taugate.evidence.options import RELEVANT_FROM, Advice, Options, RelevantFrom, SplitName
from taugate.release.adaptation import RerankerStage
from taugate.storage.files import disk_failure
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
