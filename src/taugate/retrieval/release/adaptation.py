"""The record of an adapted encoder: what it learned from, and the evidence for it. It is the file adaptation.json."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

from taugate.errors import EncoderError
from taugate.retrieval.release.evidence import Interval, IsotropyRecord, Record
from taugate.retrieval.release.measures import MeasuresRecord
from taugate.retrieval.release.records import GateRecord
from taugate.storage.files import read_bounded

ADAPTATION = "adaptation.json"
DOCUMENTS = "documents"  # folder beside the record: the exported base, where documents do not pass the map of queries
_MAX_BYTES = 64 << 20  # the losses of two million steps
RecipeName = Literal["whitening", "adapter", "layers", "ft", "pt", "pt-ft", "merge"]


class PairsRecord(Record):
    """The queries that an adaptation learned from, chose by and was judged by; each has its own documents.

    Attributes:
        source: Labelled queries of people, queries that were generated before, crops of the documents, or crops beside
            few labelled queries.
        split: Of the queries, None for crops alone.
        origins: Training queries by who asked them.
        lost: Documents that gave no query, by the reason, where queries were generated; None where nobody counted them.
        train: Queries learned from.
        validation: Queries that chose between recipes.
        unseen: Queries that decided on admission.
        documents: Passages of the corpus in each of the three parts.
    """

    source: Literal["labels", "generated", "crops", "labels and crops"]
    split: str | None
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
        exponent: Each principal component is divided by its standard deviation to twice this power, so that 0 leaves it
            and 0.5 whitens it wholly.
    """

    centring: float
    exponent: float


class CurvePoint(Record):
    """A candidate that was tried on the validation queries.

    Attributes:
        recipe: "base" for the encoder as it was.
        whitening: That was tried, None of the other recipes.
        step: Gradient steps made.
        loss: Of the training pairs before the last step, None where nothing is minimised.
        merge_weight: Of the trained weights, None where nothing is merged.
        ndcg: NDCG@10 of the validation queries.
    """

    recipe: Literal["base"] | RecipeName
    whitening: WhiteningRecord | None = None
    step: int = 0
    loss: float | None = None
    merge_weight: float | None = None
    ndcg: float


class StageRecord(Record):
    """A training through the encoder.

    Attributes:
        stage: "layers", "ft" or "pt".
        steps: How many, examples of each, and the highest learning rate. pairs or sentences are drawn again where there
            are fewer than steps × batch.
        batch: How many, examples of each, and the highest learning rate. pairs or sentences are drawn again where there
            are fewer than steps × batch.
        rate: How many, examples of each, and the highest learning rate. pairs or sentences are drawn again where there
            are fewer than steps × batch.
        bfloat16: Whether products were computed in it.
        losses: Of every step.
    """

    stage: str
    steps: int
    batch: int
    rate: float
    bfloat16: bool
    losses: list[float] = Field(repr=False)


class TrainingRecord(Record):
    """What was trained through the encoder, as it was fixed before the first step.

    Attributes:
        stages: That were trained.
        merge_weights: That were tried.
        merge_weight: Of the trained weights in the encoder, 1 where they were not merged with those of the base, None
            where nothing trained is in it.
        left_out: Recipes that were not tried, and why.
    """

    stages: list[StageRecord]
    merge_weights: list[float]
    merge_weight: float | None
    left_out: dict[str, str]


class AdaptationGain(Record):
    """The gain over the base encoder on unseen queries: means, with one-sided 95 % limits on either side.

    Attributes:
        accuracy: Of accuracy@K.
        ndcg: Of NDCG@10.
    """

    accuracy: Interval
    ndcg: Interval


class BeforeAfter(Record):
    """A figure of the base encoder and of the adapted one."""

    before: float
    after: float


class AdaptationRecord(Record):
    """How an encoder was adapted, and whether it may replace its base.

    Attributes:
        recipe: The last one applied.
        asked: The recipe that was asked for.
        base: Name of the base encoder and digest of its files.
        base_sha256: Name of the base encoder and digest of its files.
        pairs: See PairsRecord.
        seeds: Of every random choice.
        budget: As it was given.
        steps: Gradient steps that the budget allowed.
        whitening: None where it is not part of the encoder.
        keeps_documents: Whether only queries pass the map, so that documents are encoded by the base; then written.
        curve: Of the validation queries.
        admitted: Whether it is shown to be better.
        reason: Why it is not, and what would help; None where it is.
        evidence: Whether people asked the queries that decided.
        gain: Over the base.
        recall: recall@100 of the unseen queries.
        isotropy_before: Of the documents.
        isotropy_after: Of the documents.
        gate: Each recipe tried, judged on the unseen queries.
        training: Of the weights of the encoder; None where no recipe that trains them was asked for.
        measures: What the papers measure; None in a record from before there was any.
    """

    recipe: RecipeName
    asked: Literal["auto"] | RecipeName
    base: str
    base_sha256: str
    pairs: PairsRecord
    seeds: dict[str, int]
    budget: str
    steps: int
    whitening: WhiteningRecord | None
    keeps_documents: bool = False
    curve: list[CurvePoint] = Field(repr=False)
    admitted: bool
    reason: str | None
    evidence: Literal["human", "generated"]
    gain: AdaptationGain
    recall: BeforeAfter
    isotropy_before: IsotropyRecord
    isotropy_after: IsotropyRecord
    gate: list[GateRecord]
    training: TrainingRecord | None = None
    measures: MeasuresRecord | None = Field(default=None, repr=False)

    @property
    def unmerged(self) -> bool:
        """Tell whether trained weights are in the encoder, and not merged with those of the base."""
        return self.training is not None and self.training.merge_weight == 1

    @model_serializer(mode="wrap")
    def _without_absent_parts(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = dump(self)
        for name in ("training", "measures", "keeps_documents"):  # records of earlier versions keep their digest
            if fields[name] is None or fields[name] is False:
                del fields[name]
        return fields


def read_adaptation(folder: Path) -> AdaptationRecord | None:
    """Read the record of an encoder; None where it was not adapted.

    Args:
        folder: Of the sentence-transformers model.

    Raises:
        EncoderError: Where the file is damaged.
    """
    path = folder / ADAPTATION
    try:
        return AdaptationRecord.model_validate_json(read_bounded(path, _MAX_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValidationError) as error:
        raise EncoderError(
            f"{path}: not the record that taugate adapt wrote; adapt the encoder again, or remove the file"
        ) from error
