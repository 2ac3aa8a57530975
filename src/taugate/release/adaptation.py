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
    """The queries for training, for choosing a recipe and for the gate; their documents are disjoint.

    Attributes:
        source: Labelled queries of people, queries generated earlier, crops of the documents, or crops together with a
            few labelled queries.
        split: Split of the queries; None if there are only crops.
        origins: Number of training queries by origin.
        lost: Number of documents without a query, by reason, if queries were generated; None if they were not counted.
        train: Number of queries for training.
        validation: Number of queries that chose between recipes.
        unseen: Number of queries that the gate decided by.
        documents: Number of passages of the corpus in each of the three parts.
    """

    source: Literal["labels", "generated", "crops", "labels and crops"]
    split: str | None = None
    origins: dict[str, int] = Field(default_factory=dict)
    lost: dict[str, int] | None = None
    train: int
    validation: int
    unseen: int
    documents: dict[Literal["train", "validation", "unseen"], int]


class WhiteningRecord(Record):
    """The whitening in force.

    Attributes:
        centring: Share of the mean vector that is subtracted.
        exponent: Principal components are divided by their standard deviation to twice this power: 0 leaves them
            unchanged, 0.5 whitens them fully.
    """

    centring: float
    exponent: float


class RecipeTrial(Record):
    """A candidate that was tried on the validation queries.

    Attributes:
        recipe: Recipe, or "base" for the unchanged encoder.
        whitening: Whitening that was tried; None for other recipes.
        step: Number of gradient steps so far.
        loss: Loss of the training pairs before the last step; None if the recipe minimises nothing.
        merge_weight: Weight of the trained weights; None if nothing is merged.
        ndcg: NDCG@10 of the validation queries.
    """

    recipe: Literal["base"] | RecipeName
    whitening: WhiteningRecord | None = None
    step: int = 0
    loss: float | None = None
    merge_weight: float | None = None
    ndcg: float


class StageRecord(Record):
    """A stage of training the encoder's weights.

    Attributes:
        stage: "layers", "ft", "pt", "rerank" or "late-interaction".
        steps: Number of steps. Pairs or sentences are drawn again if there are fewer than steps × batch.
        batch: Number of examples per step.
        rate: Highest learning rate.
        bfloat16: Whether products were computed in bfloat16.
        losses: Loss of every step.
    """

    stage: str
    steps: int
    batch: int
    rate: float
    bfloat16: bool
    losses: list[float] = Field(repr=False)


class TrainingRecord(Record):
    """The training of the encoder's weights, as planned before the first step.

    Attributes:
        stages: Stages of training.
        merge_weights: Merge weights that were tried.
        merge_weight: Weight of the trained weights in the encoder: 1 if they were not merged with the base, None if the
            encoder contains no trained weights.
        left_out: Reasons by recipe that was not tried.
    """

    stages: list[StageRecord]
    merge_weights: list[float]
    merge_weight: float | None = None
    left_out: dict[str, str]


class AdaptationGain(Record):
    """The gain over the base encoder on unseen queries: means, with one-sided 95 % limits on either side.

    Attributes:
        accuracy: Gain in accuracy@K.
        ndcg: Gain in NDCG@10.
    """

    accuracy: Interval
    ndcg: Interval


class BeforeAfter(Record):
    """A figure for the base encoder and for the adapted one."""

    before: float
    after: float


class Adapted(Record):
    """How a model was adapted to a data set, and whether it may be used.

    Attributes:
        base: Name of the base encoder.
        base_sha256: Digest of the base encoder's files.
        pairs: Queries for training, choosing and deciding.
        budget: The requested budget.
        admitted: Whether it is shown to be better.
        reason: Why it is not shown to be better, and what would help; None if it is.
        evidence: Whether people asked the queries that decided.
    """

    base: str
    base_sha256: str
    pairs: PairsRecord
    budget: str
    admitted: bool
    reason: str | None = None
    evidence: Literal["human", "generated"]


class AdaptationRecord(Adapted):
    """How an encoder was adapted, and whether it may replace its base.

    Attributes:
        recipe: The last recipe applied.
        asked: The requested recipe.
        seeds: Seeds by random choice.
        steps: Number of gradient steps that the budget allowed.
        whitening: Whitening in the encoder; None if there is none.
        keeps_documents: Whether only queries pass the map, so that the base encodes documents; written only if true.
        curve: Results on the validation queries.
        gain: Gain over the base.
        recall: recall@100 of the unseen queries.
        lexical_weight: Weights of the lexical share in the scores that the encoders were compared by; None if
            that was the cosine.
        isotropy_before: Isotropy of the documents with the base encoder.
        isotropy_after: Isotropy of the documents with the adapted encoder.
        gate: Decision of the gate on each recipe, from the unseen queries.
        training: Training of the encoder's weights; None if no recipe that trains them was requested.
        measures: The papers' measures; None in a record of a version without them.
    """

    recipe: RecipeName
    asked: Literal["auto"] | RecipeName
    seeds: dict[str, int]
    steps: int
    whitening: WhiteningRecord | None = None
    keeps_documents: bool = Field(default=False, exclude_if=lambda value: not value)
    curve: list[RecipeTrial] = Field(repr=False)
    gain: AdaptationGain
    recall: BeforeAfter
    lexical_weight: BeforeAfter | None = None
    isotropy_before: IsotropyRecord
    isotropy_after: IsotropyRecord
    gate: list[GateRecord]
    training: TrainingRecord | None = None
    measures: MeasuresRecord | None = Field(default=None, repr=False)

    @property
    def unmerged(self) -> bool:
        """Whether the encoder contains trained weights that are not merged with the base."""
        return self.training is not None and self.training.merge_weight == 1


def read_adaptation(folder: Path) -> AdaptationRecord | None:
    """Read the record of an encoder from the folder of its model; None if it was not adapted.

    Raises:
        EncoderError: If the file is damaged.
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
    """How a second stage was trained, and whether it may rank the results of its encoder.

    Attributes:
        unanswerable: Number of unanswerable queries for training.
        seed: Seed of every random choice.
        lexical_weight: Weight of the lexical share in the first stage's score; 0 if that is the cosine.
        candidates: Number of the first stage's results that were reranked.
        training: Steps and losses of the training.
        first_stage_weight: Weight of the first stage's score, chosen on the validation queries.
        gate: Decision of the gate on the unseen queries.
        separation: AUROC of the best score, answerable against unanswerable, of the first stage and of the second; None
            without unanswerable queries.
    """

    unanswerable: int
    seed: int
    lexical_weight: float
    candidates: int
    training: StageRecord
    first_stage_weight: float = Field(ge=0)
    gate: GateRecord
    separation: PairedLoss | None = None


def read_reranker_adaptation(folder: Path) -> RerankerAdaptation | None:
    """Read the record from the folder of a cross-encoder; None if it was not trained by `taugate adapt`.

    Raises:
        EncoderError: If the file is damaged.
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
