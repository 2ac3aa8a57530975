"""Fine-tuning with triplets of query, positive and negative: through the whole encoder, or through its last layers.

The loss is the contrastive one of "Unsupervised Domain Adaption for Neural Information Retrieval" (§4.1, InfoNCE), as
sentence-transformers has it: of all positives and negatives of a step, each query has to be nearest to its own one.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from torch.utils.data import SequentialSampler

from taugate.adaptation.linear.map import LinearMap
from taugate.adaptation.linear.modules import append_map
from taugate.adaptation.training.plan import NothingToLearn
from taugate.adaptation.training.repeated_texts import RepeatedTextsLoss
from taugate.adaptation.training.run import Schedule, TrainingRun
from taugate.adaptation.training.upper_layers import LowerStates, transformer_layers, upper_model
from taugate.adaptation.unfinished import writing_to

_SCALE = 20.0  # a temperature of 0.05, as the adapter has it
_MINI_BATCH = 32  # texts that are in memory at once, whatever the batch
_STREAM = 5  # of the seed, for what is drawn


@dataclass(frozen=True)
class Triplets:
    """n triplets of texts, with the prompts of the encoder before them."""

    queries: list[str]
    positives: list[str]
    negatives: list[str]

    @classmethod
    def draw(  # noqa: PLR0913, PLR0917 (what is drawn from, and how)
        cls,
        queries: Sequence[str],
        documents: Sequence[str],
        relevant: Sequence[NDArray[np.int64]],
        negatives: NDArray[np.int64],
        count: int,
        seed: int,
        together: int = 1,
    ) -> Self:
        """Draw a positive and a negative for each query, again and again until there are enough.

        Queries that are drawn together share both, and stand next to each other.

        Args:
            queries: n texts.
            documents: Texts.
            relevant: Rows of the documents that answer each query, one at least.
            negatives: (n, c) rows of documents that do not, −1 where there is none.
            count: Of triplets.
            seed: Of the draws.
            together: The most queries of one document that are drawn together.

        Raises:
            NothingToLearn: Where no query has a negative.
        """
        rng = np.random.default_rng([seed, _STREAM])
        usable = np.flatnonzero((negatives >= 0).any(axis=1))
        if not len(usable):
            raise NothingToLearn(
                "every document may answer every query, so that there is no triplet to fine-tune on; add documents, or "
                "choose --recipe adapter"
            )
        drawn: list[tuple[int, int, int]] = []
        while len(drawn) < count:
            answered = defaultdict[int, list[int]](list)
            for row in rng.permutation(usable).tolist():
                answered[int(rng.choice(relevant[row]))].append(row)
            groups = [
                (positive, rows[start : start + together])
                for positive, rows in answered.items()
                for start in range(0, len(rows), together)
            ]
            for group in rng.permutation(len(groups)).tolist():
                positive, rows = groups[group]
                against = _wrong_for_all(rows, relevant, negatives)
                if not len(against):  # what is wrong for one answers another
                    rows = rows[:1]
                    against = _wrong_for_all(rows, relevant, negatives)
                negative = int(rng.choice(against))
                drawn += [(row, positive, negative) for row in rows]
        drawn = drawn[:count]
        return cls(
            [queries[row] for row, _, _ in drawn],
            [documents[row] for _, row, _ in drawn],
            [documents[row] for _, _, row in drawn],
        )

    @property
    def texts(self) -> list[str]:
        """Return every text once."""
        return list(dict.fromkeys([*self.queries, *self.positives, *self.negatives]))


def fine_tune(
    model: SentenceTransformer,
    triplets: Triplets,
    schedule: Schedule,
    run: TrainingRun,
    stage: str = "ft",
    told: Callable[[float], None] | None = None,
) -> list[float]:
    """Train the whole encoder, in place; returns the loss of every step.

    Args:
        model: To train.
        triplets: To learn from.
        schedule: See TrainingRun.train.
        run: See TrainingRun.train.
        stage: See TrainingRun.train.
        told: See TrainingRun.train.

    Raises:
        EncoderError: Where the loss is no number, InputError where the folder cannot be written.
    """
    model.requires_grad_(True)
    _freeze_maps(model)
    loss = CachedMultipleNegativesRankingLoss(model, scale=_SCALE, mini_batch_size=min(_MINI_BATCH, schedule.batch))
    return _train(model, loss, triplets, schedule, run, stage, told)


def fine_tune_layers(  # noqa: PLR0913, PLR0917 (those of `fine_tune`, and which layers)
    model: SentenceTransformer,
    name: str,
    upper: int,
    triplets: Triplets,
    schedule: Schedule,
    run: TrainingRun,
    stage: str = "layers",
    told: Callable[[float], None] | None = None,
) -> list[float]:
    """Train the last layers of an encoder over the states that the others give, in place.

    Args:
        name: Of the model, for messages.
        upper: How many layers learn; the others are parameters of `fine_tune`.

    Raises:
        EncoderError: Where the model has no such layers, or the loss is no number, InputError where the folder cannot
            be written.
    """
    transformer_layers(model, name)
    kept = run.folder / stage / "states.safetensors"
    with writing_to(run.folder):
        states = LowerStates.compute(model, name, upper, triplets.texts, kept, run.watch, bfloat16=run.bfloat16)
    with upper_model(model, name, upper, states) as view:
        _freeze_maps(view)
        loss = RepeatedTextsLoss(view, scale=_SCALE)
        losses = _train(view, loss, triplets, schedule, run, stage, told, _AsDrawn)
    kept.unlink(missing_ok=True)
    return losses


def with_map(model: SentenceTransformer, learned: LinearMap | None) -> SentenceTransformer:
    """Return a model of the same modules that ends in a map, which stays as it is while the others learn.

    What was learned on embeddings so far is where training begins, and not lost to it.

    Args:
        model: Whose modules are shared.
        learned: The map, None for none.
    """
    whole = SentenceTransformer(modules=list(model), device="cpu")
    if learned is not None:
        append_map(whole, learned)
    return whole


class _AsDrawn(SentenceTransformerTrainer):
    """Makes a batch of triplets that stand next to each other, whose order is random already."""

    def get_batch_sampler(
        self, dataset: Sized, batch_size: int, drop_last: bool, *_: object, **__: object
    ) -> DefaultBatchSampler:
        return DefaultBatchSampler(SequentialSampler(dataset), batch_size, drop_last)


def _train(  # noqa: PLR0913, PLR0917 (those of `fine_tune`, the loss and the trainer)
    model: SentenceTransformer,
    loss: CachedMultipleNegativesRankingLoss | MultipleNegativesRankingLoss,
    triplets: Triplets,
    schedule: Schedule,
    run: TrainingRun,
    stage: str,
    told: Callable[[float], None] | None,
    trainer: type[SentenceTransformerTrainer] = SentenceTransformerTrainer,
) -> list[float]:
    from datasets import Dataset

    columns = {"anchor": triplets.queries, "positive": triplets.positives, "negative": triplets.negatives}
    dataset = Dataset.from_dict(columns)
    return run.train(stage, trainer, model, schedule, told, train_dataset=dataset, loss=loss)


def _wrong_for_all(
    rows: Sequence[int], relevant: Sequence[NDArray[np.int64]], negatives: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the negatives of some queries that answer none of them.

    Args:
        rows: Of the queries.
    """
    found = negatives[rows]
    return np.setdiff1d(found[found >= 0], np.concatenate([relevant[row] for row in rows]))


def _freeze_maps(model: SentenceTransformer) -> None:
    """Keep the linear maps as they are: those that were learned on embeddings, and those of the base."""
    for module in model:
        if type(module).__name__ == "Dense":
            module.requires_grad_(False)
