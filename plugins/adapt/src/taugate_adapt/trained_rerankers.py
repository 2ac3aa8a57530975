"""The rerankers that `taugate adapt --stage` trains, both from the transformer of the encoder.

Trains an encoder's token vectors for MaxSim, with a contrastive loss. The score of a pair is that of
`retrieval/rerank/late_interaction.py`: the mean of the largest similarities of the query's tokens, weighted by how rare
they are. In a step, every query is compared with the documents of all of them: its own, in-batch negatives, and mined
ones. The loss is the contrastive one, in both directions: of a query against documents, and of a document against
queries, among which are those that it is near to but does not answer.

`rerank` is a cross-encoder, which reads a query and a document together. `late-interaction` trains the vectors of their
tokens. The job (`reranker.py`) is the same for both.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder as TorchCrossEncoder
from sentence_transformers import MultiVectorEncoder
from torch.nn.functional import softplus
from torch.utils.data import Dataset

from taugate.calibration.acceptance.baseline import LexicalPart, SearchTrial
from taugate.calibration.acceptance.better_lists import GRID
from taugate.calibration.encoding.rerankers import encode_tokens, rarity
from taugate.calibration.export.model_folder import prompt_of
from taugate.calibration.export.rerankers import OWN_WEIGHT, encoder_tokens, export_cross_encoder, export_token_vectors
from taugate.calibration.metrics.inputs import relevant_passages
from taugate.calibration.progress import Job
from taugate.calibration.settings import LexicalChoice
from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.acceptance import DEPTH
from taugate.policy.arrays import Float32, QueryVectors
from taugate.release.adaptation import RerankerStage
from taugate.release.encoder import Role
from taugate.release.layout import TOKEN_VECTORS
from taugate.retrieval.documents.store import Documents, DocumentStore
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.index.words import hybrid_vectors
from taugate.retrieval.rerank.cross_encoder import CrossEncoder
from taugate.retrieval.rerank.late_interaction import LateInteraction, TokenEncoder
from taugate.retrieval.rerank.stage import Reranker, TextReranker
from taugate_adapt.pairs import TRAIN, AdaptationQueries, PairedTexts
from taugate_adapt.recipes import EncodedPairs
from taugate_adapt.settings import TextSeconds
from taugate_adapt.training.cross_encoding import HARDER, ScoredPairs, new_cross_encoder, train_cross_encoder
from taugate_adapt.training.run import InOrder, Schedule, TrainingRun
from taugate_adapt.training.upper_layers import LAYERS, transformer_layers

STAGE = "late-interaction"
RATE = 1e-4  # as of an encoder's last layers (`RATES`); the paper's 5e-6 is for a model that was trained for MaxSim
BATCH = 32  # queries in a step; the paper has as many triplets
_TOGETHER = 4  # queries on a document that share it, and a negative, in a step: documents cost most
_MAX_TOKENS = 256  # of a document, as in benchmark_diversity, Table 4
_SCALE = 32.0  # ColBERT adds up the similarities of 32 tokens, of which this score is the mean
_MASKED = -1e4  # below every score, and a finite number in bfloat16
_STREAM = 10  # random stream of the seed for the draws

_Model = TypeVar("_Model", TorchCrossEncoder, MultiVectorEncoder)


class TokenExample(NamedTuple):
    """Rows of a query, of a document that answers it or is near to an unanswerable query, and of a mined negative."""

    query: int
    document: int
    negative: int


def draw(pairs: ScoredPairs, count: int, seed: int) -> list[TokenExample]:
    """Draw examples, of which those on the same document are adjacent and share a negative.

    If the negative has queries of its own, they are next: so a step has documents that are hard to tell apart, most of
    them both as an answer and as a negative, and encodes each of them once.
    """
    rng = np.random.default_rng([seed, _STREAM])
    usable = pairs.usable()
    drawn: list[TokenExample] = []
    while len(drawn) < count:
        near = defaultdict[int, list[int]](list)
        for row in rng.permutation(usable).tolist():
            answers = pairs.relevant[row]
            near[int(rng.choice(answers)) if len(answers) else int(pairs.negatives[row, 0])].append(row)
        groups = [document for document, rows in near.items() for _ in range(0, len(rows), _TOGETHER)]
        for document in rng.permutation(groups).tolist():
            while rows := near[document][:_TOGETHER]:
                del near[document][:_TOGETHER]
                row = int(rng.choice([row for row in rows if len(pairs.relevant[row])] or rows))
                negative = int(pairs.negatives[row, int(pairs.negatives.shape[1] * rng.random() ** HARDER)])
                drawn += [TokenExample(row, document, negative) for row in rows]
                document = negative  # noqa: PLW2901 (follows the negatives)
    return drawn[:count]


class _Batches(Dataset[TokenExample]):
    """Training examples in order; `collate` turns them into a batch."""

    def __init__(self, model: MultiVectorEncoder, pairs: ScoredPairs, examples: Sequence[TokenExample]) -> None:
        self._tokenizer: Any = model.tokenizer
        self._longest = min(_MAX_TOKENS, int(model.max_seq_length or _MAX_TOKENS))
        self._pairs, self._examples = pairs, examples
        self._prompts: dict[Role, str] = {
            "query": prompt_of(model.prompts, "query"),
            "document": prompt_of(model.prompts, "document", "passage", "corpus"),
        }

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, place: int) -> TokenExample:
        return self._examples[place]

    def tokens(self, texts: Sequence[str], role: Role) -> dict[str, list[list[int]]]:
        """Return the token ids and the mask of n texts, (n, t) int64."""
        prompted = [self._prompts[role] + text for text in texts]
        return {**self._tokenizer(prompted, truncation=True, max_length=self._longest)}

    def collate(self, examples: Sequence[TokenExample]) -> dict[str, dict[str, torch.Tensor] | torch.Tensor]:
        """Return a batch: tokens of b queries, of their d different documents, and which answer which, (b, d) bool."""
        pairs = self._pairs
        rows = [*dict.fromkeys(row for example in examples for row in (example.document, example.negative))]
        columns = np.array(rows)
        relevant = [np.isin(columns, pairs.relevant[example.query]) for example in examples]

        def padded(texts: list[str], role: Role) -> dict[str, torch.Tensor]:
            return dict(self._tokenizer.pad(self.tokens(texts, role), return_tensors="pt"))

        return {
            "queries": padded([pairs.queries[example.query] for example in examples], "query"),
            "documents": padded([pairs.documents[row] for row in rows], "document"),
            "relevant": torch.from_numpy(np.stack(relevant)),
        }


class _Loss(torch.nn.Module):
    """The loss of a batch; a module, so that the trainer finds the weights to learn."""

    def __init__(self, model: MultiVectorEncoder, weights: Float32) -> None:
        super().__init__()
        self.steps: Any = torch.nn.ModuleList(model)
        self.register_buffer("weights", torch.from_numpy(weights), persistent=False)

    def forward(
        self, queries: dict[str, torch.Tensor], documents: dict[str, torch.Tensor], relevant: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        found, compared = self._vectors(queries), self._vectors(documents)
        similarities = torch.einsum("qth,dsh->qdts", found, compared)
        absent = ~documents["attention_mask"].bool()
        best = similarities.masked_fill(absent[None, :, None, :], _MASKED).amax(-1).float()
        weights = self.get_buffer("weights")[queries["input_ids"]] * queries["attention_mask"]
        scores = _SCALE * (best @ (weights / weights.sum(1, keepdim=True))[:, :, None])[:, :, 0]
        return {"loss": _contrast(scores, relevant) + _contrast(scores.T, relevant.T)}

    def _vectors(self, features: dict[str, torch.Tensor]) -> torch.Tensor:
        passed: Any = dict(features)
        for step in self.steps:
            passed = step(passed)
        vectors: torch.Tensor = passed["token_embeddings"]
        return vectors


def _contrast(scores: torch.Tensor, relevant: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of relevant pairs, each against the irrelevant ones of its row; both (b, d)."""
    irrelevant = scores.masked_fill(relevant, _MASKED).logsumexp(1, keepdim=True)
    count = relevant.sum().clamp(min=1)
    return (softplus(irrelevant - scores) * relevant).sum() / count


def train_token_encoder(
    model: MultiVectorEncoder, name: str, pairs: ScoredPairs, schedule: Schedule, run: TrainingRun
) -> list[float]:
    """Train the last layers in place, and return the loss of every step; `name` is the encoder's, for messages."""
    data = _Batches(model, pairs, draw(pairs, schedule.steps * schedule.batch, run.seed))
    weights = rarity(data.tokens(pairs.documents, "document")["input_ids"], len(model.tokenizer))
    layered: Any = model  # has what this function reads of an encoder
    model.requires_grad_(False)
    for layer in transformer_layers(layered, name)[-LAYERS:]:
        layer.requires_grad_(True)
    loss = _Loss(model, weights)
    losses = run.train(STAGE, InOrder, loss, schedule, train_dataset=data, data_collator=data.collate)
    model.eval()
    return losses


@dataclass(frozen=True)
class TrainedReranker(ABC, Generic[_Model]):
    """A reranker in training."""

    stage: ClassVar[RerankerStage]
    rate: ClassVar[float]
    batch: ClassVar[int]

    model: _Model
    name: str

    @classmethod
    @abstractmethod
    def begin(cls, folder: Path, name: str, seed: int) -> Self:
        """Make the reranker of an encoder."""

    @staticmethod
    @abstractmethod
    def judging_seconds(text: TextSeconds, queries: int, candidates: int, documents: int) -> float:
        """Return the seconds that judging takes.

        Args:
            text: Speed of the encoder that the model is made from, which has as many weights, in onnxruntime.
        """

    @abstractmethod
    def train(self, pairs: ScoredPairs, schedule: Schedule, run: TrainingRun) -> tuple[list[float], float]:
        """Train in place."""

    def save(self, folder: Path) -> None:
        """Write a folder that sentence-transformers reads."""
        self.model.save(str(folder), create_model_card=False)

    @abstractmethod
    def over(self, documents: Documents, spool: Path, job: Job) -> Reranker:
        """Export the model into an empty folder, and return it as a reranker of a data set's documents."""


@dataclass(frozen=True)
class TrainedCrossEncoder(TrainedReranker[TorchCrossEncoder]):
    """A cross-encoder in training."""

    stage = "rerank"
    # Higher than the paper's 5e-6 for a model that ranks already: a new head has to learn. Chosen, not tuned.
    rate = 1e-4
    batch = 16  # queries in a step, with up to four documents each. Chosen, not tuned.

    @classmethod
    def begin(cls, folder: Path, name: str, seed: int) -> Self:
        """See `TrainedReranker`."""
        return cls(new_cross_encoder(folder, name, seed), name)

    @staticmethod
    def judging_seconds(text: TextSeconds, queries: int, candidates: int, documents: int) -> float:
        """See `TrainedReranker`: every pair of a query and a candidate is read."""
        return text.of(queries * candidates, queries * candidates)

    def train(self, pairs: ScoredPairs, schedule: Schedule, run: TrainingRun) -> tuple[list[float], float]:
        """See `TrainedReranker`."""
        return train_cross_encoder(self.model, pairs, schedule, run)

    def over(self, documents: Documents, spool: Path, job: Job) -> Reranker:
        """See `TrainedReranker`."""
        saved, exported = spool / "model", spool / "onnx"
        exported.mkdir()
        self.save(saved)
        export_cross_encoder(saved, self.name, "", exported)
        return TextReranker(CrossEncoder(exported), documents)


@dataclass(frozen=True)
class TrainedTokenEncoder(TrainedReranker[MultiVectorEncoder]):
    """A token encoder in training."""

    stage = "late-interaction"
    rate = RATE
    batch = BATCH

    @classmethod
    def begin(cls, folder: Path, name: str, seed: int) -> Self:
        """See `TrainedReranker`; no weight is new."""
        return cls(encoder_tokens(folder, name), name)

    @staticmethod
    def judging_seconds(text: TextSeconds, queries: int, candidates: int, documents: int) -> float:
        """See `TrainedReranker`: every text is encoded once."""
        return text.of(documents, queries)

    def train(self, pairs: ScoredPairs, schedule: Schedule, run: TrainingRun) -> tuple[list[float], float]:
        """See `TrainedReranker`."""
        losses = train_token_encoder(self.model, self.name, pairs, schedule, run)
        return losses, OWN_WEIGHT

    def over(self, documents: Documents, spool: Path, job: Job) -> Reranker:
        """See `TrainedReranker`."""
        exported = spool / "onnx"
        exported.mkdir()
        export_token_vectors(self.model, self.name, "", exported, first_stage_weight=0.0)
        encoder = TokenEncoder(exported)
        return LateInteraction(encoder, encode_tokens(encoder, documents, spool / TOKEN_VECTORS, job, None))


TRAINED: dict[RerankerStage, type[TrainedReranker[Any]]] = {
    trained.stage: trained for trained in (TrainedCrossEncoder, TrainedTokenEncoder)
}


_NEGATIVES = 16  # for each query, of which each epoch draws one; the paper's triplets have ten
_NEGATIVES_STREAM = 9  # random stream of the seed for negatives of queries with few
EncodeQueries = Callable[[Sequence[LabelledQuery]], Float32]


@dataclass(frozen=True)
class FirstStage:
    """Searches the complete corpus.

    Attributes:
        trial: The search, with the lexical share that is best for the queries to learn from and to choose by.
    """

    pairs: EncodedPairs
    encode: EncodeQueries
    trial: SearchTrial

    @classmethod
    def choose(cls, pairs: EncodedPairs, encode: EncodeQueries, lexical: LexicalChoice) -> "FirstStage":
        """Choose the weight of the lexical share by NDCG@10 of the queries to learn from and to choose by."""
        queries = [*pairs.queries.train, *pairs.queries.validation]
        vectors = np.concatenate([pairs.train, pairs.validation])
        best = SearchTrial.build(queries, vectors, pairs.documents, DEPTH, pairs.parents)
        if lexical == "off":
            return cls(pairs, encode, best)
        worded = replace(best, vectors=hybrid_vectors(vectors, (query.text for query in queries)))
        words = LexicalIndex.of(document.encoded_text for document in pairs.corpus)
        weights = GRID if lexical == "auto" else (lexical,)
        trials = [replace(worded, lexical=LexicalPart(words, weight)) for weight in weights]
        if lexical == "auto":
            trials.append(best)
        return cls(pairs, encode, max(trials, key=lambda trial: float(trial.exact_outcomes.ndcg.mean())))

    @property
    def lexical_weight(self) -> float:
        """Weight of the lexical share; 0 if the score is the cosine."""
        return 0.0 if self.trial.lexical is None else self.trial.lexical.weight

    def search(self, queries: Sequence[LabelledQuery], candidates: int) -> TopK:
        """Return the (n, N) candidates of n queries."""
        return self.trial.exact.search(self._compared(queries, self.encode(queries)), candidates)

    def training_pairs(self, seed: int) -> ScoredPairs:
        """Mine negatives for the queries to learn from, among the documents to learn from, and score all of them."""
        queries = [*self.pairs.queries.train, *self.pairs.queries.unanswerable[TRAIN]]
        paired, allowed = self._paired_texts(queries), self.pairs.queries.parts.passages(TRAIN)
        mined = paired.mine(_NEGATIVES, np.random.default_rng([seed, _NEGATIVES_STREAM])).positions
        for row, query in enumerate(queries):
            if not query.relevant and query.judged:  # the document was judged, and does not answer it
                mined[row, 0] = np.searchsorted(allowed, query.judged[0])
        vectors = self._compared(queries, paired.queries)

        def score(rows: NDArray[np.int64], documents: NDArray[np.int64]) -> Float32:
            return self.trial.exact.score(vectors[rows], allowed[documents])

        relevant_scores = [
            score(np.array([row]), documents[None])[0] if len(documents) else np.zeros(0, np.float32)
            for row, documents in enumerate(paired.relevant)
        ]
        scores = score(np.arange(len(queries)), np.maximum(mined, 0))
        return ScoredPairs(paired.texts, [*paired.document_texts], paired.relevant, relevant_scores, mined, scores)

    def _paired_texts(self, queries: Sequence[LabelledQuery]) -> PairedTexts:
        paired, others = self.pairs.paired_texts(None), queries[len(self.pairs.train) :]
        return replace(
            paired,
            queries=np.concatenate([paired.queries, self.encode(others)]) if others else paired.queries,
            texts=[query.text for query in queries],
            relevant=[*paired.relevant, *(np.zeros(0, dtype=np.int64) for _ in others)],
        )

    def _compared(self, queries: Sequence[LabelledQuery], vectors: Float32) -> QueryVectors:
        if self.trial.lexical is None:
            return vectors
        return hybrid_vectors(vectors, (query.text for query in queries))


def random_pairs(corpus: DocumentStore, queries: AdaptationQueries, seed: int) -> ScoredPairs:
    """Return pairs as of `training_pairs`, with random negatives and scores: they take as long to learn from."""
    rng, allowed = np.random.default_rng([seed, _NEGATIVES_STREAM]), queries.parts.passages(TRAIN)
    questions = [*queries.train, *queries.unanswerable[TRAIN]]
    relevant = [np.searchsorted(allowed, positions) for positions in relevant_passages(queries.train, corpus.parents)]
    relevant += [np.zeros(0, dtype=np.int64)] * len(queries.unanswerable[TRAIN])
    negatives = rng.integers(len(allowed), size=(len(questions), _NEGATIVES))
    scores = rng.random(negatives.shape, dtype=np.float32)
    relevant_scores = [np.ones(len(documents), dtype=np.float32) for documents in relevant]
    texts = [corpus[position].encoded_text for position in allowed.tolist()]
    return ScoredPairs([query.text for query in questions], texts, relevant, relevant_scores, negatives, scores)
