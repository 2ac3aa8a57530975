"""Pre-training (thresholds, §2.4): masked language modelling on the sentences of the corpus, without a label.

Some tokens of each sentence are hidden, and the transformer learns to predict them from the others (Devlin et al.,
"BERT: Pre-training of Deep Bidirectional Transformers", 2019, §3.1). It does not learn similarity: the paper's Table 2
has lower accuracies after it, so fine-tuning has to follow.
"""

import contextlib
import io
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch.utils.data import Dataset
from transformers import AutoModelForMaskedLM, DataCollatorForLanguageModeling, PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_pt_utils import get_length_grouped_indices

from taugate.calibration.export.torch_model import is_transformer
from taugate.data.parsed import sentences
from taugate.errors import EncoderError
from taugate.retrieval.documents.store import DocumentStore
from taugate_adapt.training.plan import NothingToLearn
from taugate_adapt.training.run import InOrder, Schedule, TrainingRun

_MASKED = 0.15  # share of the tokens, Devlin et al., §3.1
_NOT_MASKED = -100  # label of unmasked tokens in transformers
_STREAM = 4  # random stream of the seed for the order of the sentences


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
    return int(np.random.SeedSequence([seed, _STREAM, stream + 1]).generate_state(1, np.uint64)[0] >> 1)
