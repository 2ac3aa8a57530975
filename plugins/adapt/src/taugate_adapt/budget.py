"""Converts a time budget into steps, by a short timing pass before the first step."""

import math
import time
import timeit
from collections.abc import Callable, Sequence

import numpy as np

from taugate.calibration.comparison.measures import TEXTS
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.progress import Job
from taugate.data.labelled_queries import LabelledQuery
from taugate.errors import EncoderError, InputError
from taugate.release.adaptation import RecipeName
from taugate.release.encoder import Role
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate_adapt.encoder_trainer import EncoderTrainer
from taugate_adapt.pairs import TRAIN, AdaptationQueries
from taugate_adapt.recipes import LearnedRecipes
from taugate_adapt.settings import (
    BATCHES,
    MIN_STEPS,
    AdaptationSettings,
    NothingToLearn,
    Recipe,
    StagePlan,
    TextSeconds,
    TimeBudget,
    TrainingPlan,
)

_STAGES: dict[Recipe, tuple[RecipeName, ...]] = {
    "auto": ("layers", "ft", "pt-ft"),
    "layers": ("layers",),
    "ft": ("ft",),
    "pt": ("pt",),
    "pt-ft": ("pt-ft",),
    "merge": ("layers",),
}
MERGE_WEIGHTS = (0.5, 0.75, 0.25)  # weights of the trained encoder, the most useful first; 0 and 1 are the two encoders
_LAYERS_DOCUMENTS = 64  # documents in a batch, with as many negatives: a gigabyte of activations for 200 tokens
_EXPORT_SECONDS = 15.0  # for loading, tracing and checking a model of 22 million weights, on a free processor
_MINUTE, _SPARED = 60, 0.9  # a tenth more is recommended than is needed by the measured speed
_PROBE_SECONDS = 0.2  # of processor time, which is many slices of the scheduler
TIMED = StagePlan(steps=2, batch=4)  # of a cross-encoder of 22 million weights, one to three seconds per example
_TIMED_TEXTS = 48
_TIMING_SECONDS = 30.0  # duration of the timing pass itself, including loading PyTorch's trainers
_FASTER = 0.9  # bfloat16 is used if it takes less than this share of the time of float32
_WORTH_TIMING = 2  # bfloat16 is timed unless a product of matrices takes more than so many times as long
_STREAM = 7  # random stream of the seed for the timed sample


def plan_within(
    settings: AdaptationSettings,
    trainer: EncoderTrainer,
    linear: LearnedRecipes,
    linear_seconds: float,
    work: str,
    untrainable: str | None,
) -> TrainingPlan:
    """Fix the steps of every recipe.

    Args:
        untrainable: Why no weights can be trained, None if they can.
    """
    recipes, merges = _STAGES[settings.recipe], settings.recipe in {"auto", "merge"}
    if untrainable is not None:
        left_out = {", ".join([*recipes, "merge"]): untrainable}
        return TrainingPlan(work=work, adapter_steps=linear.steps, left_out=left_out)
    if settings.steps is not None:  # a fixed number of steps needs no timing
        stages: dict[RecipeName, StagePlan] = {
            recipe: StagePlan(steps=settings.steps, batch=_batches(recipe, trainer)[-1]) for recipe in recipes
        }
        weights = [*MERGE_WEIGHTS] if merges else []
        return TrainingPlan(work=work, adapter_steps=linear.steps, stages=stages, merge_weights=weights)
    with trainer.job.task("timing"):
        text = _text_seconds(trainer)
        after = export_seconds() + linear_seconds + text.of(*_texts(trainer))
        ending = 2 * linear_seconds + text.of(TEXTS, 0)  # for the final searches, the measures and writing
        left = float(settings.seconds or 0) - trainer.job.total - ending
        planner = _Planner(settings, trainer, linear, TimeBudget.of(left, after))
        for recipe in recipes:
            planner.plan(recipe)
            if merges and planner.stages and not planner.weights:  # merging is cheaper than the following recipes
                planner.merge(MERGE_WEIGHTS[0], after)
        for weight in MERGE_WEIGHTS[len(planner.weights) :] if merges and planner.stages else ():
            planner.merge(weight, after)
    seconds, left_out = planner.remaining.seconds, planner.left_out
    if merges and planner.stages and not planner.weights:
        left_out["merge"] = f"{max(0.0, seconds):.0f} seconds of the budget are left, and it takes {after:.0f}"
    return TrainingPlan(
        work=work,
        adapter_steps=linear.steps,
        bfloat16=bool(planner.bfloat16),
        stages=planner.stages,
        merge_weights=planner.weights,
        left_out=left_out | planner.remaining.left_out,
        after=after + ending,
    )


class _Planner:
    """Allocates the remaining time to one recipe after the other.

    Attributes:
        bfloat16: Whether training in bfloat16 is faster, None before the first recipe was timed.
    """

    def __init__(
        self, settings: AdaptationSettings, trainer: EncoderTrainer, linear: LearnedRecipes, remaining: TimeBudget
    ) -> None:
        self._settings, self._trainer, self._linear = settings, trainer, linear
        self._example = 0.0  # seconds for an example of the previous recipe
        self.remaining = remaining
        self.stages: dict[RecipeName, StagePlan] = {}
        self.weights: list[float] = []
        self.left_out: dict[str, str] = {}
        self.bfloat16: bool | None = None

    def plan(self, recipe: RecipeName) -> None:
        """Measure the speed of a recipe over a few steps, and give it a share of the budget."""
        trainer, remaining, batches = self._trainer, self.remaining, _batches(recipe, self._trainer)
        # A recipe costs more than the previous one; one that is too expensive anyway is not timed.
        if not remaining.covers(_TIMING_SECONDS + MIN_STEPS * batches[-1] * self._example):
            remaining.leave_out(recipe)
            return
        began = time.perf_counter()
        try:
            self._example, self.bfloat16 = example_seconds(
                lambda fast: trainer.step_seconds(recipe, self._linear.chosen, TIMED, bfloat16=fast), self.bfloat16
            )
        except (EncoderError, NothingToLearn) as error:
            if self._settings.recipe != "auto":
                raise
            self.left_out[recipe] = str(error)
            return
        once = _lower_seconds(trainer, bfloat16=self.bfloat16) if recipe == "layers" else 0.0
        remaining.seconds -= time.perf_counter() - began
        stage_plan = remaining.allocate(recipe, self._example, once, batches, len(trainer.pairs.train))
        if stage_plan is not None:
            self.stages[recipe] = stage_plan

    def merge(self, weight: float, seconds: float) -> None:
        """Add a weight of merging, which takes some seconds, if the remaining time covers it."""
        if self.remaining.covers(0.0):
            self.weights.append(weight)
            self.remaining.seconds -= seconds


def example_seconds(step_seconds: Callable[[bool], float], bfloat16: bool | None = None) -> tuple[float, bool]:
    """Return the time of a training example in the faster of float32 and bfloat16, and whether that is bfloat16."""
    seconds, fast = step_seconds(bool(bfloat16)), bool(bfloat16)
    if bfloat16 is None and may_be_faster():
        other = step_seconds(True)
        seconds, fast = min(seconds, other), other < _FASTER * seconds
    return seconds / TIMED.batch, fast


def may_be_faster() -> bool:
    """Return whether products in bfloat16 may be faster here than in float32.

    Without instructions for bfloat16, they take some 40 times as long, and a step would take minutes.
    """
    import torch

    def product_seconds(dtype: torch.dtype) -> float:
        left, right = torch.ones(128, 384, dtype=dtype), torch.ones(384, 384, dtype=dtype)
        return min(timeit.repeat(lambda: left @ right, number=1, repeat=5))

    return torch.cuda.is_available() or (
        product_seconds(torch.bfloat16) < _WORTH_TIMING * product_seconds(torch.float32)
    )


def _batches(recipe: RecipeName, trainer: EncoderTrainer) -> tuple[int, ...]:
    return (_LAYERS_DOCUMENTS * trainer.together,) if recipe == "layers" else BATCHES


def _texts(trainer: EncoderTrainer) -> tuple[int, int]:
    """Count the documents and the queries that every trained encoder encodes."""
    pairs = trainer.pairs
    return len(pairs.documents), len(pairs.train) + len(pairs.validation) + len(pairs.unseen)


def _text_seconds(trainer: EncoderTrainer) -> TextSeconds:
    return text_seconds(trainer.encoder, *_sample(trainer))


def text_seconds(encoder: ExportedEncoder, documents: Sequence[str], queries: Sequence[str]) -> TextSeconds:
    """Time an encoder on a sample of texts, twice for each kind, because other work may slow one run."""

    def timed(texts: Sequence[str], role: Role) -> float:
        encoder.encode(texts[:1], role)
        return min(timeit.repeat(lambda: encoder.encode(texts, role), number=1, repeat=2)) / len(texts)

    return TextSeconds(timed(documents, "document"), timed(queries, "query"))


def encoding_seconds(corpus: DocumentStore, queries: AdaptationQueries, encoder: ExportedEncoder, seed: int) -> float:
    """Estimate on a sample how long the texts take that the cache lacks."""
    documents, questions = sample(corpus, queries.train, seed)
    cache = EmbeddingCache.of(encoder)
    keys = {cache.key(encoder.config.cached_as("document") + text) for text in documents}
    new = 1 - len(cache.get([*keys])) / len(keys)
    parts = (queries.train, queries.validation, queries.unseen)
    return new * text_seconds(encoder, documents, questions).of(len(corpus), sum(map(len, parts)))


def check_encoding(
    corpus: DocumentStore, queries: AdaptationQueries, encoder: ExportedEncoder, settings: AdaptationSettings, job: Job
) -> None:
    """Raise InputError if encoding alone takes longer than the budget."""
    if settings.seconds is None:
        return
    with job.task("timing"):
        seconds = encoding_seconds(corpus, queries, encoder, settings.seed)
    if job.total + seconds > settings.seconds:
        raise too_small(settings, f"encoding {len(corpus):,} documents takes {seconds:.0f} s here", job.total + seconds)


def too_small(settings: AdaptationSettings, because: str, seconds: float) -> InputError:
    """Return the error of a budget that should be so many seconds."""
    minutes = math.ceil(seconds / _SPARED / _MINUTE)
    return InputError(f"--budget {settings.budget}: {because}; give {minutes}m or more, or a number of steps")


def export_seconds() -> float:
    """Return the seconds that an export takes beside the processes that are running now."""
    began, used = time.perf_counter(), time.thread_time()
    while time.thread_time() - used < _PROBE_SECONDS:
        pass
    return _EXPORT_SECONDS * (time.perf_counter() - began) / _PROBE_SECONDS


def _lower_seconds(trainer: EncoderTrainer, *, bfloat16: bool) -> float:
    """Return the seconds that the frozen layers take for all training documents and queries."""
    documents, queries = (trainer.lower_layers_seconds(texts, bfloat16=bfloat16) for texts in _sample(trainer))
    return TextSeconds(documents, queries).of(
        len(trainer.pairs.queries.parts.passages(TRAIN)), len(trainer.pairs.train)
    )


def _sample(trainer: EncoderTrainer) -> tuple[list[str], list[str]]:
    return sample(trainer.pairs.corpus, trainer.pairs.queries.train, trainer.seed)


def sample(corpus: DocumentStore, train: Sequence[LabelledQuery], seed: int) -> tuple[list[str], list[str]]:
    """Draw documents and training queries for timing."""
    rng = np.random.default_rng([seed, _STREAM])
    documents, queries = (rng.permutation(len(texts))[:_TIMED_TEXTS].tolist() for texts in (corpus, train))
    return [corpus[row].encoded_text for row in documents], [train[row].text for row in queries]
