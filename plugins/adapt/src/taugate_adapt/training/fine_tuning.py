"""Fine-tuning with triplets through the whole encoder or its last layers, and merging with the base by averaging.

The loss is the contrastive one of "Unsupervised Domain Adaption for Neural Information Retrieval" (§4.1, InfoNCE), in
sentence-transformers' form: among all positives and negatives of a step, a query has to be nearest to its own positive.

Merging: averages the weights of a trained encoder and its base. Weights that were fine-tuned from the same start can be
averaged (Wortsman et al., "Robust fine-tuning of zero-shot models", CVPR 2022, eq. 1). Most of the learned gain is
kept, and most of the forgotten knowledge is restored.
"""

import contextlib
import io
import json
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss
from torch.utils.data import Dataset, SequentialSampler
from transformers import AutoModelForMaskedLM, DataCollatorForLanguageModeling, PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_pt_utils import get_length_grouped_indices

from taugate.calibration.export.torch_model import is_transformer
from taugate.data.parsed import sentences
from taugate.errors import EncoderError
from taugate.retrieval.documents.store import DocumentStore
from taugate_adapt.adapter import append_map
from taugate_adapt.linear import LinearMap
from taugate_adapt.settings import NothingToLearn, writing_to
from taugate_adapt.training.run import InOrder, Schedule, TrainingRun
from taugate_adapt.training.upper_layers import (
    LowerStates,
    RepeatedTextsLoss,
    states_file,
    transformer_layers,
    upper_model,
)

if TYPE_CHECKING:
    from datasets import Dataset as Columns


_MASKED = 0.15  # share of the tokens, Devlin et al., §3.1
_NOT_MASKED = -100  # label of unmasked tokens in transformers
_SENTENCES_STREAM = 4  # random stream of the seed for the order of the sentences


def pretrain(
    model: SentenceTransformer, name: str, texts: Sequence[str], run: TrainingRun, schedule: Schedule
) -> list[float]:
    """Change the weights of a model's transformer in place, and return the loss of every step.

    The same model, sentences, schedule and seed give the same bits on the same machine, resumed or not.
    """
    masked = masked_language_model(model, name, run.seed)
    longest = int(model.max_seq_length or masked.config.max_position_embeddings)
    shown = MaskedSentences(model.tokenizer, texts, longest, schedule.steps, schedule.batch, run.seed)
    collator = MaskingCollator(model.tokenizer, run.seed)
    losses = run.train("pt", InOrder, masked, schedule, train_dataset=shown, data_collator=collator)
    model.eval()
    return losses


def corpus_sentences(documents: DocumentStore, passages: NDArray[np.int64]) -> Iterator[str]:
    """Yield the distinct sentences of some passages in corpus order.

    Args:
        passages: Positions of the passages to learn from, ascending.
    """
    seen: set[str] = set()
    for position in passages.tolist():
        for sentence in sentences(documents[position].text):
            if sentence not in seen:
                seen.add(sentence)
                yield sentence


class MaskedSentence(TypedDict):
    """A sentence, and its place in a run."""

    input_ids: list[int]
    special_tokens_mask: list[int]
    place: int


class MaskedSentences(Dataset[MaskedSentence]):
    """The sentences of all steps of a run, in the order in which they are shown.

    An epoch shows each sentence once. Sentences of about the same length share a step, which saves padding.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], longest: int, steps: int, batch: int, seed: int
    ) -> None:
        encoded = tokenizer([*texts] or [""], truncation=True, max_length=longest, return_special_tokens_mask=True)
        special: list[list[int]] = encoded["special_tokens_mask"]
        rows = [row for row, mask in enumerate(special) if 0 in mask]  # 0: a token that can be masked
        if not rows:
            raise NothingToLearn("no sentence to pre-train on; add documents with text, or choose another recipe")
        self._ids, self._special = [encoded["input_ids"][row] for row in rows], [special[row] for row in rows]
        lengths = [len(ids) for ids in self._ids]
        generator = torch.Generator().manual_seed(_state(seed, 0))
        one_epoch: Any = get_length_grouped_indices
        self._shown: list[int] = []
        while len(self._shown) < steps * batch:
            self._shown += one_epoch(lengths, batch, generator=generator)
        del self._shown[steps * batch :]

    def __len__(self) -> int:
        """Return the number of shown sentences, including repetitions."""
        return len(self._shown)

    def __getitem__(self, place: int) -> MaskedSentence:
        """Return the sentence at a place of the run, and the place, which determines the masked tokens."""
        row = self._shown[place]
        return {"input_ids": self._ids[row], "special_tokens_mask": self._special[row], "place": place}


class MaskingCollator:
    """Pads the sentences of a step and masks tokens, depending only on the seed and the place in the run.

    So a resumed run masks the same tokens.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, seed: int) -> None:
        self._collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=_MASKED, seed=seed)
        self._seed = seed

    def __call__(self, examples: Sequence[MaskedSentence]) -> dict[str, torch.Tensor]:
        """Return input_ids, attention_mask and labels, (batch, tokens) int64, for examples of MaskedSentences."""
        self._collator.generator = torch.Generator().manual_seed(_state(self._seed, 1 + examples[0]["place"]))
        kept = [{name: value for name, value in example.items() if name != "place"} for example in examples]
        while True:
            batch: dict[str, torch.Tensor] = self._collator(kept)
            if (batch["labels"] != _NOT_MASKED).any():  # otherwise the loss would not be a finite number
                return batch


def masked_language_model(model: SentenceTransformer, name: str, seed: int) -> PreTrainedModel:
    """Put a head that predicts hidden tokens on the transformer of a model, with shared weights.

    The head is the one in the base model's folder. Most sentence encoders have none; then a new one is initialised by
    transformers, and its output weights are the transformer's token embeddings.
    """
    if not is_transformer(model):
        raise EncoderError(f"encoder {name!r}: has no transformer that could be pre-trained; choose another recipe")
    if getattr(model.tokenizer, "mask_token", None) is None:
        raise EncoderError(
            f"encoder {name!r}: its tokenizer has no mask token, which pre-training needs; choose another recipe, such "
            "as ft"
        )
    first: Any = model[0]
    transformer = first.auto_model
    weights = transformer_folder(Path(transformer.name_or_path))
    logging.getLogger("transformers").setLevel(logging.ERROR)  # hides a table of the head's missing weights
    with torch.random.fork_rng(devices=[]), contextlib.redirect_stderr(io.StringIO()):
        torch.manual_seed(_state(seed, -1))
        try:
            masked: Any
            if weights is None:
                from_config: Any = AutoModelForMaskedLM.from_config
                masked = from_config(transformer.config, dtype=transformer.dtype)
            else:
                masked = AutoModelForMaskedLM.from_pretrained(
                    weights, config=transformer.config, dtype=transformer.dtype, local_files_only=True
                )
        except ValueError as error:  # the configuration is not in the mapping of AutoModelForMaskedLM
            kind = transformer.config.model_type
            raise EncoderError(
                f"encoder {name!r}: transformers has no masked language model of the kind {kind}; choose another "
                "recipe, such as ft"
            ) from error
    setattr(masked, masked.base_model_prefix, transformer)
    masked.tie_weights()
    placed: PreTrainedModel = masked.to(transformer.device)
    return placed


def transformer_folder(folder: Path) -> Path | None:
    """Return the folder of the transformer in the folder of a model; None if the model was not read from a folder.

    Older versions of sentence-transformers put it below the folder of the model, in 0_Transformer.
    """
    modules = folder / "modules.json"
    if modules.is_file():
        return folder / str(json.loads(modules.read_text(encoding="utf-8"))[0]["path"])
    return folder if folder.is_dir() else None


def _state(seed: int, stream: int) -> int:
    """Return the state of a generator for a separate stream (−1 or more) of the seed."""
    return int(np.random.SeedSequence([seed, _SENTENCES_STREAM, stream + 1]).generate_state(1, np.uint64)[0] >> 1)


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

    def columns(self) -> "Columns":
        """Return the triplets as a data set for the trainer of sentence-transformers."""
        from datasets import Dataset as Columns

        return Columns.from_dict({"anchor": self.queries, "positive": self.positives, "negative": self.negatives})


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
