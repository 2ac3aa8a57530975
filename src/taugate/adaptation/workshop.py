"""Where the weights of an encoder are trained: a recipe at a time, each in a folder of its own that survives a kill."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from taugate.adaptation.linear.map import LinearMap
from taugate.adaptation.parts import TRAIN
from taugate.adaptation.recipes import EncodedPairs, LearnedRecipes, TriedRecipe
from taugate.adaptation.training.plan import StagePlan
from taugate.adaptation.unfinished import writing_to
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.source import is_exported
from taugate.calibration.metrics.documents import relevant_passages
from taugate.calibration.progress import Stopwatch
from taugate.errors import EncoderError, InputError
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.release.adaptation import RecipeName, StageRecord
from taugate.storage.folders import publish, staging_folder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from taugate.adaptation.training.run import TrainingRun

_NEGATIVES = 4  # of each query, from which one is drawn for each triplet
_TOGETHER = 4  # with more, a batch of the same cost has no more different documents to tell apart
_STREAM = 6  # of the seed, for the negatives
# ft: that of sentence-transformers' examples; pt: of Devlin et al., "BERT: Pre-training of Deep Bidirectional
# Transformers", 2019, appendix A.3; layers: of trials on squadshifts_reddit with seed 1, which docs/benchmarks/adapt.md
# lists; on one set, and of one other rate, 3e-4, with another loss.
RATES = {"layers": 1e-4, "ft": 2e-5, "pt": 5e-5}


@dataclass(frozen=True)
class Workshop:
    """What training through the encoder needs.

    Attributes:
        pairs: Queries and documents, encoded by the base encoder.
        encoder: That.
        base: Its name, for messages.
        model: Its folder.
        work: The folder of the unfinished work.
        seed: Of every random choice.
        watch: Shows what is under way.
    """

    pairs: EncodedPairs
    encoder: OnnxEncoder
    base: str
    model: Path
    work: Path
    seed: int
    watch: Stopwatch

    @property
    def together(self) -> int:
        """Return how many queries of a document the last layers learn from in one step.

        The document costs most of it, and is encoded once for all of them.
        """
        asked = relevant_passages(self.pairs.queries.train, self.pairs.parents)
        return max(1, min(_TOGETHER, len(asked) // len(np.unique(np.concatenate(asked)))))

    def load(self, start: TriedRecipe | None = None) -> "SentenceTransformer":
        """Load a model with the weights of a recipe.

        Args:
            start: None for the base.
        """
        return self._load((start.transformer if start else None) or self.model)

    def _load(self, folder: Path) -> "SentenceTransformer":
        from taugate.calibration.export.torch_model import load_model

        return load_model(folder, self.base)

    def train(
        self, recipe: RecipeName, start: TriedRecipe, made: StagePlan, *, bfloat16: bool
    ) -> tuple["SentenceTransformer", list[StageRecord]]:
        """Train a recipe, or read what a killed run has of it; returns the model and the record of each stage.

        Args:
            recipe: That goes through the encoder.
            start: Where it begins, but for pre-training, which begins at the base.
            made: Steps of each stage.
            bfloat16: Whether products are computed in it.

        Raises:
            EncoderError: Where the base cannot be trained or a loss is no number, InputError where the folder cannot be
                written.
        """
        from taugate.adaptation.training.run import TrainingRun

        run = TrainingRun(self.work / recipe, self.seed, self.watch, bfloat16)
        saved = run.folder / "model"
        model = self._load(saved) if saved.is_dir() else self.load(None if recipe.startswith("pt") else start)
        records = []
        for stage in recipe.split("-"):
            learned = None if recipe.startswith("pt") else start.learned
            losses = run.losses(stage) if saved.is_dir() else None
            if losses is None:
                losses = self._stage(stage, model, start, learned, made, run, None)
            records.append(
                StageRecord(
                    stage=stage,
                    steps=made.steps,
                    batch=made.batch,
                    rate=RATES[stage],
                    bfloat16=bfloat16,
                    losses=losses,
                )
            )
        return model, records

    def step_seconds(self, recipe: RecipeName, start: TriedRecipe, made: StagePlan, *, bfloat16: bool) -> float:
        """Return how long a step of a recipe takes, as a few of them do; the parameters are those of `train`."""
        from taugate.adaptation.training.run import TrainingRun

        run = TrainingRun(self.work, self.seed, self.watch, bfloat16)
        seconds = 0.0
        for stage in recipe.split("-"):
            model = self.load()

            def some(scratch: "TrainingRun", told: Callable[[float], None], stage: str = stage) -> None:
                self._stage(stage, model, start, start.learned, made, scratch, told)  # noqa: B023 (called at once)

            seconds += run.step_seconds(stage, some)
        return seconds

    def lower_layers_seconds(self, texts: Sequence[str], *, bfloat16: bool) -> float:
        """Return the mean time per text of the frozen layers, in seconds.

        Args:
            texts: That are timed, distinct or not.
            bfloat16: Whether products are computed in it.
        """
        from taugate.adaptation.training.upper_layers import LAYERS, LowerStates

        model, distinct = self.load(), [*dict.fromkeys(texts)]
        with tempfile.TemporaryDirectory(prefix="taugate-") as scratch:

            def compute(some: Sequence[str], name: str) -> float:
                began = time.perf_counter()
                LowerStates.compute(model, self.base, LAYERS, some, Path(scratch, name), self.watch, bfloat16=bfloat16)
                return time.perf_counter() - began

            compute(distinct[:1], "first")  # which warms up
            return compute(distinct, "all") / len(distinct)

    def _stage(  # noqa: PLR0913, PLR0917 (what learns, from where, and how long)
        self,
        stage: str,
        model: "SentenceTransformer",
        start: TriedRecipe,
        learned: LinearMap | None,
        made: StagePlan,
        run: "TrainingRun",
        told: Callable[[float], None] | None,
    ) -> list[float]:
        """Make the steps of one stage; the model changes in place, and ends in the map `learned` while it does."""
        from taugate.adaptation.training.fine_tuning import Triplets, fine_tune, fine_tune_layers, with_map
        from taugate.adaptation.training.run import Schedule
        from taugate.adaptation.training.upper_layers import LAYERS

        schedule = Schedule(made.steps, made.batch, RATES[stage])
        if stage == "pt":
            from taugate.adaptation.training.pretraining import corpus_sentences, pretrain

            texts = [*corpus_sentences(self.pairs.corpus, self.pairs.queries.parts.passages(TRAIN))]
            return pretrain(model, self.base, texts, run, schedule, told)
        paired = start.pairs.paired_texts(start.learned)
        prompts, documents = self.encoder.config, [*paired.document_texts]
        triplets = Triplets.draw(
            [prompts.query_prompt + text for text in paired.texts],
            [prompts.document_prompt + text for text in documents],
            paired.relevant,
            paired.mine(_NEGATIVES, np.random.default_rng([self.seed, _STREAM])).positions,
            made.steps * made.batch,
            self.seed,
            self.together if stage == "layers" else 1,
        )
        whole = with_map(model, learned)
        if stage == "layers":
            return fine_tune_layers(whole, self.base, LAYERS, triplets, schedule, run, stage, told)
        return fine_tune(whole, triplets, schedule, run, stage, told)

    def with_best_map(
        self, name: RecipeName, model: "SentenceTransformer", folder: str, before: TriedRecipe | None, steps: int
    ) -> TriedRecipe:
        """Encode everything with a trained model, and choose its map: none, the one it had, or one that is fitted anew.

        Args:
            name: Of the recipe.
            model: Trained.
            folder: Of its files, within the work.
            before: Whose map it was trained with, None for none.
            steps: Of the adapter.

        Raises:
            InputError: Where the folder cannot be written.
        """
        transformer, pairs = self._encode(model, self.work / folder)
        fitted = LearnedRecipes.climb(pairs, "auto", self.seed, steps, lambda _: None).chosen
        candidates = [fitted, TriedRecipe(name, None, pairs.validate(None), None, pairs)]
        if before is not None and before.learned is not None:
            per_query = pairs.validate(before.learned)
            candidates.append(TriedRecipe(name, before.learned, per_query, before.whitening, pairs))
        best = max(candidates, key=lambda each: each.ndcg)
        return replace(best, name=name, transformer=transformer)

    def _encode(self, model: "SentenceTransformer", folder: Path) -> tuple[Path, EncodedPairs]:
        """Save a model, export it, and encode everything, unless a killed run has done so."""
        from taugate.calibration.export.onnx_export import export

        saved = folder / "model"
        graph = graph_of(saved)
        with writing_to(folder):
            if not saved.is_dir():
                with staging_folder(folder, ".model-") as staging:
                    model.save(str(staging), create_model_card=False)
                    publish(staging, saved)
            if not graph.is_dir():
                with staging_folder(folder, ".onnx-") as staging, self.watch.task("exporting the trained encoder"):
                    export(saved, self.base, "", staging)
                    publish(staging, graph)
        encoder = OnnxEncoder.load(graph)
        cache = EmbeddingCache(folder / "embeddings.sqlite", encoder.config.dimension)
        return saved, EncodedPairs.encode(self.pairs.corpus, self.pairs.queries, encoder, cache, self.watch)


def check_trainable(model: Path, base: str) -> None:
    """Find out whether the weights of a base can be trained.

    Args:
        model: Its folder.
        base: Its name, for messages.

    Raises:
        InputError: Without the extra, EncoderError for the base.
    """
    if missing := [name for name in ("accelerate", "datasets") if find_spec(name) is None]:
        raise InputError(
            f"{missing[0]} is not installed, and training through the encoder needs it: pip install "
            "'taugate[adaptation]', or choose --recipe adapter"
        )
    if is_exported(model):
        raise EncoderError(
            f"encoder {base!r}: is an exported graph, whose weights cannot be trained; give the "
            "sentence-transformers folder that it was exported from, or choose --recipe adapter"
        )
    from taugate.adaptation.training.upper_layers import transformer_layers
    from taugate.calibration.export.torch_model import load_model

    transformer_layers(load_model(model, base), base)


def graph_of(transformer: Path) -> Path:
    """Return the folder of the exported graph of a trained model.

    Args:
        transformer: Folder of the model.
    """
    return transformer.parent / "onnx"
