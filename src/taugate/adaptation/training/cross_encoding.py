"""Training a cross-encoder from the transformer of an encoder: same layers, and a head with one label.

The cross-encoder learns what to add to the first stage's score s: the probability that a document answers a query is
the sigmoid of its output plus w · s, with w fitted before the first step. So it begins about as good as the first
stage; a cross-encoder that ranks alone would have to learn from a few thousand pairs what the first stage knows. The
loss is the binary cross-entropy of single pairs, not a comparison of documents, because the score also has to tell
queries without an answer.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import Dataset
from transformers.trainer_pt_utils import get_length_grouped_indices

from taugate.adaptation.training.plan import NothingToLearn
from taugate.adaptation.training.pretraining import transformer_folder
from taugate.adaptation.training.run import InOrder, Schedule, TrainingRun
from taugate.errors import EncoderError
from taugate.retrieval.vectors.similarity import Float32

RERANK: Final = "rerank"  # name of the stage of training, and of its folder
_MAX_TOKENS = 256  # of a pair, as in benchmark_diversity, Table 4
# Of 16 negatives, the one of rank 16·u³ is drawn, u uniform: the first one in 40 % of the draws. A second stage mostly
# has to tell the first few results apart. Chosen, not tuned.
HARDER = 3
_STREAM = 8  # random stream of the seed for the draws


class Example(NamedTuple):
    """A training pair: query, document, label (1 if relevant, else 0) and score of the first stage."""

    query: str
    document: str
    label: float
    first: float


@dataclass(frozen=True)
class ScoredPairs:
    """n queries with documents that answer them and documents that do not, and the first stage's scores of both.

    Attributes:
        queries: Texts of the queries.
        documents: Texts of the documents.
        relevant: Rows of the documents that answer each query; none of an unanswerable query.
        relevant_scores: The first stage's scores of these.
        negatives: (n, c) int64 rows of documents that do not, hardest first; −1 if every document answers the query.
        negative_scores: (n, c) float32 scores of these.
    """

    queries: Sequence[str]
    documents: Sequence[str]
    relevant: Sequence[NDArray[np.int64]]
    relevant_scores: Sequence[Float32]
    negatives: NDArray[np.int64]
    negative_scores: Float32

    def __len__(self) -> int:
        """Return the number of pairs in which every query has been drawn once."""
        return sum(1 + bool(len(rows)) for rows in self.relevant)

    def draw(self, count: int, seed: int) -> list[Example]:
        """Draw `count` training pairs: for each query a relevant document, if there is one, and a negative.

        Args:
            count: Number of pairs.
            seed: Seed of the draws.

        Raises:
            NothingToLearn: If no query has both.
        """
        rng = np.random.default_rng([seed, _STREAM])
        usable = [row for row in range(len(self.queries)) if self.negatives[row, 0] >= 0]
        if not any(len(self.relevant[row]) for row in usable):
            raise NothingToLearn(
                "every document may answer every query, so there is no pair to learn from; add documents"
            )
        drawn: list[Example] = []
        while len(drawn) < count:
            epoch = [example for row in usable for example in self._draw_one(row, rng)]
            drawn += [epoch[place] for place in rng.permutation(len(epoch)).tolist()]
        return drawn[:count]

    def _draw_one(self, row: int, rng: np.random.Generator) -> Iterator[Example]:
        query, relevant, place = self.queries[row], self.relevant[row], 0
        if len(relevant):
            answer = int(rng.integers(len(relevant)))
            yield Example(query, self.documents[int(relevant[answer])], 1.0, float(self.relevant_scores[row][answer]))
            # Of an unanswerable query, the hardest document alone: others say little about it.
            place = int(self.negatives.shape[1] * rng.random() ** HARDER)
        negative = self.documents[int(self.negatives[row, place])]
        yield Example(query, negative, 0.0, float(self.negative_scores[row, place]))


class _PairDataset(Dataset[dict[str, Any]]):
    """The tokens of examples, in batches of about the same length, which saves padding."""

    def __init__(self, model: CrossEncoder, examples: Sequence[Example], weight: float, batch: int, seed: int) -> None:
        self._tokenizer: Any = model.tokenizer
        queries, documents = [example.query for example in examples], [example.document for example in examples]
        self._encoded = self._tokenizer(queries, documents, truncation="longest_first", max_length=model.max_seq_length)
        self._examples, self._weight = examples, weight
        grouped: Any = get_length_grouped_indices
        lengths = [len(ids) for ids in self._encoded["input_ids"]]
        self._order: list[int] = grouped(lengths, batch, generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, place: int) -> dict[str, Any]:
        row = self._order[place]
        features = {name: values[row] for name, values in self._encoded.items()}
        example = self._examples[row]
        return features | {"labels": example.label, "offsets": self._weight * example.first}

    def collate(self, examples: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Return a padded batch of b examples: tokens (b, t) int64, labels and offsets (b,) float32."""
        numbers = {name: torch.tensor([example[name] for example in examples]) for name in ("labels", "offsets")}
        tokens = [{name: value for name, value in example.items() if name not in numbers} for example in examples]
        padded: dict[str, torch.Tensor] = dict(self._tokenizer.pad(tokens, return_tensors="pt"))
        return padded | numbers


class _Loss(torch.nn.Module):
    """Binary cross-entropy of a batch of `_PairDataset`; a module, so that the trainer finds the weights to learn."""

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model: Any = model.model

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor,
        offsets: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        logits = self.model(input_ids=input_ids, attention_mask=attention_mask, **types).logits[:, 0]
        return {"loss": binary_cross_entropy_with_logits(logits.float() + offsets, labels)}


def new_cross_encoder(folder: Path, name: str, seed: int) -> CrossEncoder:
    """Put a head with one label on the transformer of an encoder; its weights are drawn with the seed.

    Args:
        folder: Folder of the encoder.
        name: Name of the encoder, for messages.
        seed: Seed of the head.

    Raises:
        EncoderError: If the transformer cannot read pairs.
    """
    for library in ("transformers", "sentence_transformers"):  # which warn that the head is new
        logging.getLogger(library).setLevel(logging.ERROR)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            model: CrossEncoder = CrossEncoder(
                str(transformer_folder(folder)),
                num_labels=1,
                activation_fn=torch.nn.Identity(),
                device="cpu",
                local_files_only=True,
                model_kwargs={"dtype": torch.float32},
            )
        except Exception as error:  # the loader raises whatever it happens to hit first
            raise EncoderError(
                f"encoder {name!r}: transformers has no cross-encoder of its kind ({error}); adapt another encoder"
            ) from error
    model.max_seq_length = min(_MAX_TOKENS, int(getattr(model.config, "max_position_embeddings", _MAX_TOKENS)))
    return model


def train_cross_encoder(
    model: CrossEncoder, pairs: ScoredPairs, schedule: Schedule, run: TrainingRun
) -> tuple[list[float], float]:
    """Train in place, and return the loss of every step and the weight of the first stage's score.

    Raises:
        EncoderError: If the loss is not a finite number.
        InputError: If the folder cannot be written, or there is nothing to learn from.
    """
    examples = pairs.draw(schedule.steps * schedule.batch, run.seed)
    first, labels = np.array([[example.first] for example in examples]), [example.label for example in examples]
    fitted = LogisticRegression(C=np.inf).fit(first, labels)
    weight = max(0.0, float(fitted.coef_[0, 0]))
    transformer: Any = model.model
    # Few of its words occur in the pairs, and without it a checkpoint is half as large.
    transformer.get_input_embeddings().requires_grad_(False)
    head = [layer for layer in transformer.modules() if isinstance(layer, torch.nn.Linear)][-1]
    with torch.no_grad():
        head.bias.fill_(float(fitted.intercept_[0]))
    data, loss = _PairDataset(model, examples, weight, schedule.batch, run.seed), _Loss(model)
    losses = run.train(RERANK, InOrder, loss, schedule, train_dataset=data, data_collator=data.collate)
    model.eval()
    return losses, weight
