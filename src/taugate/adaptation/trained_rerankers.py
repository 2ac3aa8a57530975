"""The rerankers that `taugate adapt --stage` trains, both from the transformer of the encoder.

`rerank` is a cross-encoder, which reads a query and a document together. `late-interaction` trains the vectors of their
tokens. The job (`reranker.py`) is the same for both.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from sentence_transformers import CrossEncoder as TorchCrossEncoder
from sentence_transformers import MultiVectorEncoder

from taugate.adaptation.training import late_interaction
from taugate.adaptation.training.cross_encoding import ScoredPairs, new_cross_encoder, train_cross_encoder
from taugate.adaptation.training.plan import TextSeconds
from taugate.adaptation.training.run import Schedule, TrainingRun
from taugate.calibration.encoding.token_vectors import encode_tokens
from taugate.calibration.export.cross_encoder import export_cross_encoder
from taugate.calibration.export.token_encoder import OWN_WEIGHT, encoder_tokens, export_token_vectors
from taugate.calibration.progress import Job
from taugate.retrieval.documents.store import Documents
from taugate.retrieval.release.adaptation import RerankerStage
from taugate.retrieval.rerank.cross_encoder import CrossEncoder
from taugate.retrieval.rerank.late_interaction import TOKEN_VECTORS, LateInteraction
from taugate.retrieval.rerank.reranker import Reranker, TextReranker
from taugate.retrieval.rerank.token_encoder import TokenEncoder

_Model = TypeVar("_Model", TorchCrossEncoder, MultiVectorEncoder)


@dataclass(frozen=True)
class TrainedReranker(ABC, Generic[_Model]):
    """A reranker in training.

    Attributes:
        stage: Name of the stage of training, and of its folder.
        rate: Highest learning rate.
        batch: Examples in a step.
        model: The model.
        name: Name of the encoder that it was made from.
    """

    stage: ClassVar[RerankerStage]
    rate: ClassVar[float]
    batch: ClassVar[int]

    model: _Model
    name: str

    @classmethod
    @abstractmethod
    def begin(cls, folder: Path, name: str, seed: int) -> Self:
        """Make the reranker of an encoder.

        Args:
            folder: Folder of the encoder.
            name: Name of the encoder, for messages.
            seed: Seed of new weights.

        Raises:
            EncoderError: If the encoder's transformer cannot be trained.
        """

    @staticmethod
    @abstractmethod
    def judging_seconds(text: TextSeconds, queries: int, candidates: int, documents: int) -> float:
        """Return the seconds that judging takes.

        Args:
            text: Speed of the encoder that the model is made from, which has as many weights, in onnxruntime.
            queries: Number of queries to rank for.
            candidates: Number of candidates of a query.
            documents: Number of documents in the corpus.
        """

    @abstractmethod
    def train(self, pairs: ScoredPairs, schedule: Schedule, run: TrainingRun) -> tuple[list[float], float]:
        """Train in place.

        Returns:
            The loss of every step, and the weight of the first stage's score to begin the choice with.

        Raises:
            EncoderError: If the loss is not a finite number.
            InputError: If the folder cannot be written, or there is nothing to learn from.
        """

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
    rate = late_interaction.RATE
    batch = late_interaction.BATCH

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
        losses = late_interaction.train_token_encoder(self.model, self.name, pairs, schedule, run)
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
