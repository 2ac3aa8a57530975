"""Records of a second stage, and what its release keeps of the first stage, which answers if the second one cannot."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

import numpy as np
import orjson
from pydantic import Field, TypeAdapter, ValidationError

from taugate.errors import ReleaseError
from taugate.retrieval.encoder.bert import Precision
from taugate.retrieval.policy.scales import RerankerScale
from taugate.retrieval.release.evidence import Record, RelevanceRecord
from taugate.retrieval.release.outcome_records import MetricsRecord, PolicyRecord
from taugate.retrieval.release.refusal_records import RefusalRecord
from taugate.retrieval.release.search_records import PairedLoss
from taugate.retrieval.rerank.late_interaction import TokenVectors
from taugate.retrieval.rerank.reranker import KnownPair, RerankerKind
from taugate.storage.files import read_bounded

_PAIRS = TypeAdapter(list[KnownPair])
_MAX_PAIRS_BYTES = 1 << 20  # a hundred times what a calibration writes


class FirstStageRecord(Record):
    """The first stage alone, calibrated on the same queries. Fields are as in the manifest.

    Attributes:
        policy: Its cut, by its own scores.
        relevance: Its model of relevance.
        refusal: What refuses queries as a whole.
        metrics: What its cut keeps and loses.
    """

    policy: PolicyRecord
    relevance: RelevanceRecord | None = None
    refusal: RefusalRecord | None = None
    metrics: dict[Literal["calibration", "heldout"], MetricsRecord]


class TokenVectorsRecord(Record):
    """The token vectors of the documents, for late interaction; their digest is that of their file.

    Attributes:
        dtype: Type of a component; each vector has a scale in float32, too.
        dimension: Components of a vector.
        count: Number of vectors of all documents.
        bytes_per_passage: Mean size of a passage's vectors in bytes, with their scales.
    """

    dtype: Literal["int8"]
    dimension: int = Field(ge=1)
    count: int = Field(ge=1)
    bytes_per_passage: float = Field(gt=0)

    @classmethod
    def of(cls, vectors: TokenVectors, positions: Sequence[int]) -> Self:
        """Describe the vectors of some documents."""
        count = sum(len(vectors[position].steps) for position in positions)
        size = count * (vectors.dimension + np.dtype(np.float32).itemsize)
        return cls(dtype="int8", dimension=vectors.dimension, count=count, bytes_per_passage=size / len(positions))


class SecondStageRecord(Record):
    """The second stage: the manifest's policy, relevance, refusals and metrics are of its scores.

    Attributes:
        kind: Kind of the reranker.
        name: Name of the model, or of the endpoint's model.
        model: Name of the model in requests to an endpoint; None without an endpoint, or if requests name none.
        sha256: Digest of the files of the model, or of the scores that an endpoint gave the known pairs.
        scores: Whether scores are at least 0, or any numbers, such as log-odds.
        candidates: Number of the first stage's results that are scored.
        first_stage_weight: Weight of the first stage's score in the score that ranks; 0, and not written, if the
            reranker's score alone does.
        precision: Precision of the model; not written if it is float32.
        tolerance: Largest allowed difference of a known pair's score.
        separation: Share of pairs of an answerable and an unanswerable query in which the former has the higher best
            score (AUROC), of the first stage and of the second; None without unanswerable queries.
        token_vectors: Token vectors of the documents; None unless it is late interaction.
        first: The first stage alone.
    """

    kind: RerankerKind
    name: str
    model: str | None = None
    sha256: str
    scores: RerankerScale
    candidates: int = Field(ge=1)
    first_stage_weight: float = Field(default=0.0, ge=0, exclude_if=lambda weight: not weight)
    precision: Precision = Field(default="float32", exclude_if=lambda value: value == "float32")
    tolerance: float = Field(gt=0, lt=1)
    separation: PairedLoss | None = None
    token_vectors: TokenVectorsRecord | None = None
    first: FirstStageRecord


def candidate_name(name: str, candidates: int, precision: Precision) -> str:
    """Return the name of a second stage in the gate's records."""
    cheaper = "" if precision == "float32" else f", {precision}"
    return f"second stage {name}, {candidates} candidates{cheaper}"


def write_pairs(path: Path, pairs: list[KnownPair]) -> None:
    """Write known pairs as JSON."""
    path.write_bytes(orjson.dumps(pairs, option=orjson.OPT_INDENT_2) + b"\n")


def read_pairs(path: Path) -> list[KnownPair]:
    """Read the file that `write_pairs` wrote.

    Raises:
        ReleaseError: If it holds anything else.
    """
    try:
        return _PAIRS.validate_json(read_bounded(path, _MAX_PAIRS_BYTES))
    except (OSError, ValidationError) as error:
        raise ReleaseError(f"{path}: does not hold pairs with scores; calibrate again") from error
