"""Training a cross-encoder from the transformer of an encoder: same layers, and a head with one label.

A query is shown with a document that answers it, hard negatives and a random document. A new head learns to tell random
documents first: with one hard negative for each answer, and the first stage's score in the loss, the output of
all-MiniLM-L6-v2 stayed constant. So the model learns without that score, which is added afterwards. The loss has two
parts: the cross-entropy over the documents of a query teaches their order, and the binary cross-entropy of single pairs
makes scores comparable between queries, so that they also tell queries without an answer.
"""

import logging
from collections.abc import Sequence
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

from taugate.errors import EncoderError
from taugate.policy.arrays import Float32
from taugate_adapt.settings import NothingToLearn
from taugate_adapt.training.fine_tuning import transformer_folder
from taugate_adapt.training.run import InOrder, Schedule, TrainingRun

RERANK: Final = "rerank"  # name of the stage of training, and of its folder
_MAX_TOKENS = 256  # of a pair, as in benchmark_diversity, Table 4
# Of 16 negatives, the one of rank 16·u³ is drawn, u uniform: the first one in 40 % of the draws. A second stage mostly
# has to tell the first few results apart. Chosen, not tuned.
HARDER = 3
_HARD = 2  # of these negatives in an example, beside a random document. Chosen, not tuned.
_HEAD = "classifier"  # in the names of the weights of the head, in transformers
_FASTER = 10  # rate of the head, in rates of the transformer. Of 1 and 10, the one that learned on squad_v2_dev.
_STREAM = 8  # random stream of the seed for the draws


class RankedExample(NamedTuple):
    """A query and its documents: the first one answers it, or, of an unanswerable query, the only one does not."""

    query: str
    documents: list[str]


@dataclass(frozen=True)
class ScoredPairs:
    """n queries with documents that answer them and documents that do not, and the first stage's scores of both.

    Attributes:
        relevant: Rows of the documents that answer each query; none of an unanswerable query.
        negatives: (n, c) int64 rows of documents that do not, hardest first; −1 if every document answers the query.
        negative_scores: (n, c) float32 scores of these.
    """

    queries: Sequence[str]
    documents: Sequence[str]
    relevant: Sequence[NDArray[np.int64]]
    relevant_scores: Sequence[Float32]
    negatives: NDArray[np.int64]
    negative_scores: Float32

    def first_stage_weight(self) -> float:
        """Return the weight of the first stage's score in the log-odds that a document answers a query."""
        relevant = np.concatenate(self.relevant_scores)
        irrelevant = self.negative_scores[self.negatives >= 0]
        labels = np.repeat([1, 0], [len(relevant), len(irrelevant)])
        fitted = LogisticRegression(C=np.inf).fit(np.concatenate([relevant, irrelevant])[:, None], labels)
        return max(0.0, float(fitted.coef_[0, 0]))

    def usable(self) -> list[int]:
        """Return the rows of the queries that have a negative."""
        usable = [row for row in range(len(self.queries)) if self.negatives[row, 0] >= 0]
        if not any(len(self.relevant[row]) for row in usable):
            raise NothingToLearn(
                "every document may answer every query, so there is no pair to learn from; add documents"
            )
        return usable

    def draw(self, count: int, seed: int) -> list[RankedExample]:
        """Draw examples of queries, each of them once before any is drawn again."""
        rng = np.random.default_rng([seed, _STREAM])
        usable = self.usable()
        drawn: list[RankedExample] = []
        while len(drawn) < count:
            drawn += [self._draw_one(row, rng) for row in rng.permutation(usable).tolist()]
        return drawn[:count]

    def _draw_one(self, row: int, rng: np.random.Generator) -> RankedExample:
        relevant, negatives = self.relevant[row], self.negatives[row]
        if not len(relevant):  # the hardest document alone: others say little about it
            return RankedExample(self.queries[row], [self.documents[int(negatives[0])]])
        hard = negatives[(len(negatives) * rng.random(_HARD) ** HARDER).astype(np.int64)]
        while (easy := int(rng.integers(len(self.documents)))) in relevant:
            pass
        shown = int(rng.choice(relevant)), *hard.tolist(), easy
        return RankedExample(self.queries[row], [self.documents[place] for place in shown])


class _Examples(Dataset[RankedExample]):
    """Examples in batches of about the same length, which saves padding."""

    def __init__(self, model: CrossEncoder, examples: Sequence[RankedExample], batch: int, seed: int) -> None:
        self._model: Any = model
        grouped: Any = get_length_grouped_indices
        lengths = [max(map(len, example.documents)) for example in examples]
        order: list[int] = grouped(lengths, batch, generator=torch.Generator().manual_seed(seed))
        self._examples = [examples[row] for row in order]

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, place: int) -> RankedExample:
        return self._examples[place]

    def collate(self, examples: Sequence[RankedExample]) -> dict[str, Any]:
        """Return a batch: tokens of b pairs, (b, t) int64, labels, (b,) float32, and how many pairs an example has."""
        counts = [len(example.documents) for example in examples]
        labels = [float(count > 1 and not place) for count in counts for place in range(count)]
        tokens: dict[str, torch.Tensor] = self._model.tokenizer(
            [example.query for example in examples for _ in example.documents],
            [document for example in examples for document in example.documents],
            truncation="longest_first",
            max_length=self._model.max_seq_length,
            padding=True,
            return_tensors="pt",
        )
        return {"tokens": dict(tokens), "labels": torch.tensor(labels), "counts": counts}


class _Trainer(InOrder):
    """Learns the head faster than the transformer: it is new, and at the same rate 45 steps taught it little."""

    def create_optimizer(self, model: torch.nn.Module | None = None) -> torch.optim.Optimizer:
        loss: Any = self.model
        learned = [(name, weight) for name, weight in loss.named_parameters() if weight.requires_grad]
        layers, heads = ([weight for name, weight in learned if (_HEAD in name) is new] for new in (False, True))
        rate = self.args.learning_rate
        self.optimizer = torch.optim.AdamW([{"params": layers, "lr": rate}, {"params": heads, "lr": _FASTER * rate}])
        return self.optimizer


class _Loss(torch.nn.Module):
    """The loss of a batch of `_Examples`; a module, so that the trainer finds the weights to learn."""

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model: Any = model.model

    def forward(
        self, tokens: dict[str, torch.Tensor], labels: torch.Tensor, counts: list[int]
    ) -> dict[str, torch.Tensor]:
        scores = self.model(**tokens).logits[:, 0].float()
        loss = binary_cross_entropy_with_logits(scores, labels)
        if ranked := [torch.log_softmax(own, 0)[0] for own in scores.split(counts) if len(own) > 1]:
            loss = loss - torch.stack(ranked).mean()
        return {"loss": loss}


def new_cross_encoder(folder: Path, name: str, seed: int) -> CrossEncoder:
    """Put a head with one label on the transformer of an encoder; its weights are drawn with the seed."""
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
    """Train in place, and return the loss of every step and the weight of the first stage's score."""
    transformer: Any = model.model
    # Few of its words occur in the pairs, and without it a checkpoint is half as large.
    transformer.get_input_embeddings().requires_grad_(False)
    examples = pairs.draw(schedule.steps * schedule.batch, run.seed)
    data, loss = _Examples(model, examples, schedule.batch, run.seed), _Loss(model)
    losses = run.train(RERANK, _Trainer, loss, schedule, train_dataset=data, data_collator=data.collate)
    model.eval()
    return losses, pairs.first_stage_weight()
