"""The record of a second stage that `taugate adapt --stage` trained: what it learned from, and the evidence."""

from pathlib import Path

from pydantic import Field, ValidationError

from taugate.errors import EncoderError
from taugate.retrieval.release.adaptation import Adapted, StageRecord
from taugate.retrieval.release.search_records import GateRecord, PairedLoss
from taugate.storage.files import read_bounded

RERANKER_ADAPTATION = "reranker-adaptation.json"
_MAX_BYTES = 64 << 20  # as of adaptation.json


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
