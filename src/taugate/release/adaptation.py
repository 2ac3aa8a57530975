"""The record of an adapted encoder or a trained second stage: its training queries and its evidence."""

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from taugate.errors import EncoderError
from taugate.release.evidence import Interval, IsotropyRecord, Record
from taugate.release.measures import MeasuresRecord
from taugate.release.search_records import GateRecord, PairedLoss
from taugate.storage.files import read_bounded

ADAPTATION = "adaptation.json"
DOCUMENTS = "documents"  # folder beside the record with the exported base, if only queries pass the map
_MAX_BYTES = 64 << 20  # the losses of two million steps
RerankerStage = Literal["rerank", "late-interaction"]
RecipeName = Literal["whitening", "adapter", "layers", "ft", "pt", "pt-ft", "merge"] | RerankerStage

RERANKER_ADAPTATION = "reranker-adaptation.json"


class PairsRecord(Record):
    """The queries for training, for choosing a recipe and for the gate; their documents are disjoint."""

    # Labelled queries of people, queries generated earlier, crops of the documents, or crops together with a few
    # labelled queries.
    source: Literal["labels", "generated", "crops", "labels and crops"]
    split: str | None = None  # split of the queries; None if there are only crops
    origins: dict[str, int] = Field(default_factory=dict)
    # Number of documents without a query, by reason, if queries were generated; None if they were not counted.
    lost: dict[str, int] | None = None
    train: int
    validation: int  # number of queries that chose between recipes
    unseen: int  # number of queries that the gate decided by
    # Number of passages of the corpus in each of the three parts.
    documents: dict[Literal["train", "validation", "unseen"], int]


class WhiteningRecord(Record):
    """The whitening in force."""

    centring: float  # share of the mean vector that is subtracted
    # Principal components are divided by their standard deviation to twice this power: 0 leaves them unchanged, 0.5
    # whitens them fully.
    exponent: float


class RecipeTrial(Record):
    """A candidate that was tried on the validation queries."""

    recipe: Literal["base"] | RecipeName  # recipe, or "base" for the unchanged encoder
    whitening: WhiteningRecord | None = None  # whitening that was tried; None for other recipes
    step: int = 0  # number of gradient steps so far
    loss: float | None = None  # loss of the training pairs before the last step; None if the recipe minimises nothing
    merge_weight: float | None = None  # weight of the trained weights; None if nothing is merged
    ndcg: float  # NDCG@10 of the validation queries


class StageRecord(Record):
    """A stage of training the encoder's weights."""

    stage: str  # "layers", "ft", "pt", "rerank" or "late-interaction"
    steps: int  # number of steps. Pairs or sentences are drawn again if there are fewer than steps × batch.
    batch: int
    rate: float  # highest learning rate
    bfloat16: bool  # whether products were computed in bfloat16
    losses: list[float] = Field(repr=False)


class TrainingRecord(Record):
    """The training of the encoder's weights, as planned before the first step."""

    stages: list[StageRecord]
    merge_weights: list[float]
    # Weight of the trained weights in the encoder: 1 if they were not merged with the base, None if the encoder
    # contains no trained weights.
    merge_weight: float | None = None
    left_out: dict[str, str]


class AdaptationGain(Record):
    """The gain over the base encoder on unseen queries: means, with one-sided 95 % limits on either side."""

    accuracy: Interval
    ndcg: Interval  # gain in NDCG@10


class BeforeAfter(Record):
    """A figure for the base encoder and for the adapted one."""

    before: float
    after: float


class Adapted(Record):
    """How a model was adapted to a data set, and whether it may be used."""

    base: str  # name of the base encoder
    base_sha256: str  # digest of the base encoder's files
    pairs: PairsRecord  # queries for training, choosing and deciding
    budget: str
    admitted: bool  # whether it is shown to be better
    reason: str | None = None  # why it is not shown to be better, and what would help; None if it is
    evidence: Literal["human", "generated"]  # whether people asked the queries that decided


class AdaptationRecord(Adapted):
    """How an encoder was adapted, and whether it may replace its base."""

    recipe: RecipeName  # the last recipe applied
    asked: Literal["auto"] | RecipeName  # the requested recipe
    seeds: dict[str, int]  # seeds by random choice
    steps: int  # number of gradient steps that the budget allowed
    whitening: WhiteningRecord | None = None  # whitening in the encoder; None if there is none
    # Whether only queries pass the map, so that the base encodes documents; written only if true.
    keeps_documents: bool = Field(default=False, exclude_if=lambda value: not value)
    curve: list[RecipeTrial] = Field(repr=False)
    gain: AdaptationGain
    recall: BeforeAfter  # recall@100 of the unseen queries
    # Weights of the lexical share in the scores that the encoders were compared by; None if that was the cosine.
    lexical_weight: BeforeAfter | None = None
    isotropy_before: IsotropyRecord
    isotropy_after: IsotropyRecord
    gate: list[GateRecord]  # decision of the gate on each recipe, from the unseen queries
    # Training of the encoder's weights; None if no recipe that trains them was requested.
    training: TrainingRecord | None = None
    # The papers' measures; None in a record of a version without them.
    measures: MeasuresRecord | None = Field(default=None, repr=False)

    @property
    def unmerged(self) -> bool:
        """Whether the encoder contains trained weights that are not merged with the base."""
        return self.training is not None and self.training.merge_weight == 1


def read_adaptation(folder: Path) -> AdaptationRecord | None:
    """Read the record of an encoder from the folder of its model; None if it was not adapted.

    Raises EncoderError if the file is damaged.
    """
    path = folder / ADAPTATION
    try:
        return AdaptationRecord.model_validate_json(read_bounded(path, _MAX_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValidationError) as error:
        raise EncoderError(
            f"{path}: not a record of taugate adapt; adapt the encoder again, or remove the file"
        ) from error


class RerankerAdaptation(Adapted):
    """How a second stage was trained, and whether it may rank the results of its encoder."""

    unanswerable: int
    seed: int
    lexical_weight: float  # weight of the lexical share in the first stage's score; 0 if that is the cosine
    candidates: int  # number of the first stage's results that were reranked
    training: StageRecord
    first_stage_weight: float = Field(ge=0)  # weight of the first stage's score, chosen on the validation queries
    gate: GateRecord  # decision of the gate on the unseen queries
    # AUROC of the best score, answerable against unanswerable, of the first stage and of the second; None without
    # unanswerable queries.
    separation: PairedLoss | None = None


def read_reranker_adaptation(folder: Path) -> RerankerAdaptation | None:
    """Read the record from the folder of a cross-encoder; None if it was not trained by `taugate adapt`.

    Raises EncoderError if the file is damaged.
    """
    path = folder / RERANKER_ADAPTATION
    try:
        return RerankerAdaptation.model_validate_json(read_bounded(path, _MAX_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValidationError) as error:
        raise EncoderError(
            f"{path}: not a record of taugate adapt; train the reranker again, or remove the file"
        ) from error
