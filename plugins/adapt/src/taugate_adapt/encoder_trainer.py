"""Trains the weights of an encoder, with one folder per recipe, so that a killed run can be resumed."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.source import is_exported
from taugate.calibration.metrics.inputs import relevant_passages
from taugate.calibration.progress import Job
from taugate.errors import EncoderError, InputError
from taugate.release.adaptation import RecipeName, StageRecord
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.storage.folders import publish_folder, staging_folder
from taugate_adapt.linear import LinearMap
from taugate_adapt.pairs import TRAIN
from taugate_adapt.recipes import EncodedPairs, LearnedRecipes, TriedRecipe
from taugate_adapt.settings import StagePlan, writing_to

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from taugate_adapt.training.run import TrainingRun

_NEGATIVES = 4  # negatives mined for each query; a triplet has one of them
_MAX_TOGETHER = 4  # with more, a batch of the same cost would have too few different documents
_STREAM = 6  # number of the seed's random stream for mining negatives
# Learning rates. ft: from sentence-transformers' examples; pt: from Devlin et al., "BERT: Pre-training of Deep
# Bidirectional Transformers", 2019, appendix A.3; layers: from trials on squadshifts_reddit with seed 1, listed in
# benchmarks/decisions.md; the only other trial was 3e-4 with another loss.
RATES = {"layers": 1e-4, "ft": 2e-5, "pt": 5e-5}


@dataclass(frozen=True)
class EncoderTrainer:
    """Trains recipes that change the encoder's own weights."""

    pairs: EncodedPairs
    encoder: ExportedEncoder
    base: str
    model: Path
    work: Path
    seed: int
    job: Job

    @property
    def together(self) -> int:
        """Maximum number of queries on the same document in one step of training the last layers.

        Encoding a document costs most, and is done once for all its queries in a step.
        """
        passages = relevant_passages(self.pairs.queries.train, self.pairs.parents)
        return max(1, min(_MAX_TOGETHER, len(passages) // len(np.unique(np.concatenate(passages)))))

    def load(self, start: TriedRecipe | None = None) -> "SentenceTransformer":
        """Load a model with the weights of a recipe, or of the base if `start` is None."""
        return self._load((start.transformer if start else None) or self.model)

    def _load(self, folder: Path) -> "SentenceTransformer":
        from taugate.calibration.export.torch_model import load_model

        return load_model(folder, self.base)

    def train(
        self,
        recipe: RecipeName,
        start: TriedRecipe,
        stage_plan: StagePlan,
        ended: Callable[[float], bool] | None = None,
        *,
        bfloat16: bool,
    ) -> tuple["SentenceTransformer", list[StageRecord]]:
        """Train a recipe, and return the model and the record of each stage; reuses the results of a killed run.

        Args:
            ended: Takes the duration of each step, and returns whether it was the last one; None for all steps.
        """
        from taugate_adapt.training.run import TrainingRun

        run = TrainingRun(self.work / recipe, self.seed, self.job, bfloat16, on_step=ended)
        saved = run.folder / "model"
        model = self._load(saved) if saved.is_dir() else self.load(None if recipe.startswith("pt") else start)
        records = []
        for stage in recipe.split("-"):
            learned = None if recipe.startswith("pt") else start.learned
            losses = run.losses(stage) if saved.is_dir() else None
            if losses is None:
                losses = self._stage(stage, model, start, learned, stage_plan, run)
            records.append(
                StageRecord(
                    stage=stage,
                    steps=len(losses),
                    batch=stage_plan.batch,
                    rate=RATES[stage],
                    bfloat16=bfloat16,
                    losses=losses,
                )
            )
        return model, records

    def step_seconds(self, recipe: RecipeName, start: TriedRecipe, stage_plan: StagePlan, *, bfloat16: bool) -> float:
        """Measure the duration of a step of a recipe on a few steps; the parameters are those of `train`."""
        from taugate_adapt.training.run import TrainingRun

        run = TrainingRun(self.work, self.seed, self.job, bfloat16)
        seconds = 0.0
        for stage in recipe.split("-"):
            model = self.load()

            few_steps = partial(self._stage, stage, model, start, start.learned, stage_plan)
            seconds += run.step_seconds(stage, few_steps)
        return seconds

    def lower_layers_seconds(self, texts: Sequence[str], *, bfloat16: bool) -> float:
        """Return the mean time per text of the frozen layers, in seconds."""
        from taugate_adapt.training.run import TrainingRun
        from taugate_adapt.training.upper_layers import LAYERS, LowerStates

        model, distinct = self.load(), [*dict.fromkeys(texts)]
        with tempfile.TemporaryDirectory(prefix="taugate-") as scratch:

            def compute(batch: Sequence[str], name: str) -> float:
                began = time.perf_counter()
                run = TrainingRun(Path(scratch, name), self.seed, self.job, bfloat16)
                LowerStates.compute(model, self.base, LAYERS, batch, run)
                return time.perf_counter() - began

            compute(distinct[:1], "first")  # warm-up
            return compute(distinct, "all") / len(distinct)

    def _stage(
        self,
        stage: str,
        model: "SentenceTransformer",
        start: TriedRecipe,
        learned: LinearMap | None,
        stage_plan: StagePlan,
        run: "TrainingRun",
    ) -> list[float]:
        """Run the steps of one stage, in place; in fine-tuning, vectors pass through the frozen map `learned`."""
        from taugate_adapt.training.fine_tuning import Triplets, fine_tune, fine_tune_layers, with_map
        from taugate_adapt.training.run import Schedule
        from taugate_adapt.training.upper_layers import LAYERS

        schedule = Schedule(stage_plan.steps, stage_plan.batch, RATES[stage])
        if stage == "pt":
            from taugate_adapt.training.fine_tuning import corpus_sentences, pretrain

            texts = [*corpus_sentences(self.pairs.corpus, self.pairs.queries.parts.passages(TRAIN))]
            return pretrain(model, self.base, texts, run, schedule)
        paired = start.pairs.paired_texts(start.learned)
        prompts, documents = self.encoder.config, [*paired.document_texts]
        triplets = Triplets.draw(
            [prompts.query_prompt + text for text in paired.texts],
            [prompts.document_prompt + text for text in documents],
            paired.relevant,
            paired.mine(_NEGATIVES, np.random.default_rng([self.seed, _STREAM])).positions,
            stage_plan.steps * stage_plan.batch,
            self.seed,
            self.together if stage == "layers" else 1,
        )
        mapped = with_map(model, learned)
        if stage == "layers":
            return fine_tune_layers(mapped, self.base, LAYERS, triplets, schedule, run)
        return fine_tune(mapped, triplets, schedule, run)

    def with_best_map(
        self, name: RecipeName, model: "SentenceTransformer", folder: str, before: TriedRecipe | None, steps: int
    ) -> TriedRecipe:
        """Encode everything with a trained model, and choose its map: none, the previous one, or a newly fitted one.

        Args:
            before: Recipe whose map was used during training, None if there was no map.
        """
        transformer, pairs = self._encode(model, self.work / folder)
        fitted = LearnedRecipes.try_linear(pairs, "auto", self.seed, steps, Job()).chosen
        candidates = [fitted, TriedRecipe(name, None, pairs.validate(None), None, pairs)]
        if before is not None and before.learned is not None:
            per_query = pairs.validate(before.learned)
            candidates.append(TriedRecipe(name, before.learned, per_query, before.whitening, pairs))
        best = max(candidates, key=lambda candidate: candidate.ndcg)
        return replace(best, name=name, transformer=transformer)

    def _encode(self, model: "SentenceTransformer", folder: Path) -> tuple[Path, EncodedPairs]:
        """Save a model, export it, and encode everything, except what a killed run has already done."""
        from taugate.calibration.export.encoders import EncoderExport

        saved = folder / "model"
        graph = graph_of(saved)
        with writing_to(folder):
            if not saved.is_dir():
                with staging_folder(folder, ".model-") as staging:
                    model.save(str(staging), create_model_card=False)
                    publish_folder(staging, saved)
            if not graph.is_dir():
                with staging_folder(folder, ".onnx-") as staging, self.job.task("exporting the trained encoder"):
                    EncoderExport.of(saved, self.base).write("", staging)
                    publish_folder(staging, graph)
        encoder = ExportedEncoder.load(graph)
        cache = EmbeddingCache(folder / "embeddings.sqlite", encoder.config.dimension)
        return saved, EncodedPairs.encode(self.pairs.corpus, self.pairs.queries, encoder, cache, self.job)


def check_trainable(model: Path, base: str) -> None:
    """Check that the weights of a base can be trained."""
    check_weights(model, base, ", or choose --recipe adapter")
    from taugate.calibration.export.torch_model import load_model
    from taugate_adapt.training.upper_layers import transformer_layers

    transformer_layers(load_model(model, base), base)


def check_weights(model: Path, base: str, instead: str) -> None:
    """Check that a base has weights, and that what trains them is installed."""
    if missing := [name for name in ("accelerate", "datasets") if find_spec(name) is None]:
        raise InputError(
            f"{missing[0]} is not installed, and training through the encoder needs it: pip install "
            f"'taugate-adapt[training]'{instead}"
        )
    if is_exported(model):
        raise EncoderError(
            f"encoder {base!r}: is an exported graph, whose weights cannot be trained; use the "
            f"sentence-transformers folder from which it was exported{instead}"
        )


def graph_of(transformer: Path) -> Path:
    """Return the folder of the graph that is exported from the trained model in the folder `transformer`."""
    return transformer.parent / "onnx"
