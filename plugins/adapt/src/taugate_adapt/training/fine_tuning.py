"""Fine-tuning with triplets through the whole encoder or its last layers, and merging with the base by averaging.

The loss is the contrastive one of "Unsupervised Domain Adaption for Neural Information Retrieval" (§4.1, InfoNCE), in
sentence-transformers' form: among all positives and negatives of a step, a query has to be nearest to its own positive.

Merging: averages the weights of a trained encoder and its base. Weights that were fine-tuned from the same start can be
averaged (Wortsman et al., "Robust fine-tuning of zero-shot models", CVPR 2022, eq. 1). Most of the learned gain is
kept, and most of the forgotten knowledge is restored.
"""

from collections import defaultdict
from collections.abc import Sequence, Sized
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss
from torch.utils.data import SequentialSampler

from taugate_adapt.adapter import append_map
from taugate_adapt.linear import LinearMap
from taugate_adapt.settings import writing_to
from taugate_adapt.training.plan import NothingToLearn
from taugate_adapt.training.run import Schedule, TrainingRun
from taugate_adapt.training.upper_layers import (
    LowerStates,
    RepeatedTextsLoss,
    states_file,
    transformer_layers,
    upper_model,
)

if TYPE_CHECKING:
    from datasets import Dataset


_SCALE = 20.0  # a temperature of 0.05, the same as for the adapter
_MINI_BATCH = 32  # texts in memory at once, independent of the batch
_STREAM = 5  # random stream of the seed for the draws


@dataclass(frozen=True)
class Triplets:
    """n triplets of texts, prefixed with the encoder's prompts."""

    queries: list[str]
    positives: list[str]
    negatives: list[str]

    @classmethod
    def draw(  # noqa: PLR0913, PLR0917 (the texts and the draw)
        cls,
        queries: Sequence[str],
        documents: Sequence[str],
        relevant: Sequence[NDArray[np.int64]],
        negatives: NDArray[np.int64],
        count: int,
        seed: int,
        together: int = 1,
    ) -> Self:
        """Draw a positive and a negative for each query, repeatedly until there are enough triplets.

        Queries that are drawn together share both, and are adjacent.

        Args:
            negatives: (n, c) rows of documents that do not answer the query, −1 if there is none.
        """
        rng = np.random.default_rng([seed, _STREAM])
        usable = np.flatnonzero((negatives >= 0).any(axis=1))
        if not len(usable):
            raise NothingToLearn(
                "every document may answer every query, so there is no triplet to fine-tune on; add documents, or "
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
                if not len(against):  # every negative of one query answers another one
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
        """Distinct texts of all triplets."""
        return list(dict.fromkeys([*self.queries, *self.positives, *self.negatives]))

    def columns(self) -> "Dataset":
        """Return the triplets as a data set for the trainer of sentence-transformers."""
        from datasets import Dataset

        return Dataset.from_dict({"anchor": self.queries, "positive": self.positives, "negative": self.negatives})


def fine_tune(model: SentenceTransformer, triplets: Triplets, schedule: Schedule, run: TrainingRun) -> list[float]:
    """Train the complete encoder in place, and return the loss of every step."""
    model.requires_grad_(True)
    _freeze_maps(model)
    loss = CachedMultipleNegativesRankingLoss(model, scale=_SCALE, mini_batch_size=min(_MINI_BATCH, schedule.batch))
    trainer = SentenceTransformerTrainer
    return run.train("ft", trainer, model, schedule, train_dataset=triplets.columns(), loss=loss)


def fine_tune_layers(
    model: SentenceTransformer, name: str, upper: int, triplets: Triplets, schedule: Schedule, run: TrainingRun
) -> list[float]:
    """Train the last layers of an encoder in place, over the hidden states of the lower layers.

    The last `upper` layers learn, and `name` is for messages; the other parameters are those of `fine_tune`.
    """
    transformer_layers(model, name)
    of_stage = replace(run, folder=run.folder / "layers")
    with writing_to(run.folder):
        states = LowerStates.compute(model, name, upper, triplets.texts, of_stage)
    with upper_model(model, name, upper, states) as view:
        _freeze_maps(view)
        loss = RepeatedTextsLoss(view, scale=_SCALE)
        losses = run.train("layers", _AsDrawn, view, schedule, train_dataset=triplets.columns(), loss=loss)
    states_file(of_stage).unlink(missing_ok=True)
    return losses


def with_map(model: SentenceTransformer, learned: LinearMap | None) -> SentenceTransformer:
    """Return a model of the same modules that ends in a frozen map, so that training starts from its result.

    Args:
        learned: The map, None without a map.
    """
    mapped = SentenceTransformer(modules=list(model), device="cpu")
    if learned is not None:
        append_map(mapped, learned)
    return mapped


class _AsDrawn(SentenceTransformerTrainer):
    """Makes batches of adjacent triplets, which are already in random order."""

    def get_batch_sampler(
        self, dataset: Sized, batch_size: int, drop_last: bool, *_: object, **__: object
    ) -> DefaultBatchSampler:
        return DefaultBatchSampler(SequentialSampler(dataset), batch_size, drop_last)


def _wrong_for_all(
    rows: Sequence[int], relevant: Sequence[NDArray[np.int64]], negatives: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the negatives of the queries at `rows` that answer none of these queries."""
    candidates = negatives[rows]
    return np.setdiff1d(candidates[candidates >= 0], np.concatenate([relevant[row] for row in rows]))


def _freeze_maps(model: SentenceTransformer) -> None:
    """Freeze the linear maps, those learned on embeddings and those of the base."""
    for module in model:
        if type(module).__name__ == "Dense":
            module.requires_grad_(False)


def merge(base: SentenceTransformer, trained: SentenceTransformer, weight: float) -> None:
    """Replace the weights of a trained model by (1 − w)·base + w·trained, in place."""
    originals = dict(base.named_parameters())
    with torch.no_grad():
        for name, parameter in trained.named_parameters():
            parameter.copy_(torch.lerp(originals[name], parameter, weight))
