"""What a release keeps of its labelled queries: similarities, outcomes, and the scores of each question."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, Self

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from taugate.errors import ReleaseError
from taugate.policy.arrays import Float32
from taugate.policy.names import PolicyKind
from taugate.policy.policy import POLICIES, DecisionScore
from taugate.storage.files import read_bounded
from taugate.storage.tensors import read_tensors, write_tensors

_OF_PROBABILITY = {"relevance", "correct_relevance"}  # arrays of Reference for the policy `probability` only
_OF_COMPONENTS = {"components"}  # of a run with component scores
_OUTCOME_TYPES = {  # of the arrays of Outcomes
    "query": np.uint64,
    "cluster": np.int64,
    "hit": np.bool_,
    "hit_kept": np.bool_,
    "ndcg": np.float64,
    "ndcg_kept": np.float64,
    "kept": np.int64,
    "unanswerable": np.uint64,
    "unanswerable_kept": np.int64,
}

PERCENTILES = range(101)

QuestionKind = Literal["answerable", "unanswerable", "off_topic"]
# Kept or lost: the relevant results of a question with an answer, lost to τ or to ρ; missed: it has none in its top K.
# Refused: no result, for a question that has no answer or misses it. Answered: a result, for one without an answer.
Outcome = Literal["kept", "lost", "missed", "refused", "answered"]
# More than a person reads, few enough for a browser to count again while a threshold is dragged (10 ms).
MAX_QUESTIONS = 10_000
_MAX_BYTES = 64 << 20  # ten times what calibration writes


@dataclass(frozen=True)
class Reference:
    """Similarities of q calibration queries with top-K, correct and random documents; live traffic is compared."""

    top: Float32  # (q, K) S_topK, best first
    correct: Float32  # (q,) S_corr
    random: Float32  # (q,) S_rand; (0,) if no document but the results could be scored
    kept: NDArray[np.int64]  # (q,) numbers of the K results that the policy keeps
    # (q,) bool, whether these include the correct document, so that a user can have seen it.
    correct_kept: NDArray[np.bool_]
    # (q, K) float32 probabilities that the top-K are relevant; only for the policy `probability`, and None in releases
    # of versions without it.
    relevance: Float32 | None = None
    # (q,) float32 highest relevance of a relevant document in the top-K, 0 if there is none; only present with
    # `relevance`.
    correct_relevance: Float32 | None = None
    # (q, C) float32 mean scores of the C components among the top-K; None without any.
    components: Float32 | None = None

    def __len__(self) -> int:
        return len(self.correct)

    @property
    def component_means(self) -> Float32:
        """Mean scores of the components, (q, C) float32; C = 0 without any."""
        return np.empty((len(self), 0), dtype=np.float32) if self.components is None else self.components

    def save(self, path: Path) -> None:
        """Write the arrays to one safetensors file."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        write_tensors(path, {name: array for name, array in arrays.items() if array is not None})

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the file that `save` wrote; raises ReleaseError if it holds anything else."""
        arrays = read_tensors(path)
        required = {field.name for field in fields(cls)} - _OF_PROBABILITY - _OF_COMPONENTS
        present = {*arrays} - _OF_COMPONENTS
        if present not in (required, required | _OF_PROBABILITY) or not _is_valid_reference(cls(**arrays)):
            raise ReleaseError(f"{path}: does not hold the similarities of calibration queries; calibrate again")
        return cls(**arrays)


def _is_valid_reference(read: Reference) -> bool:
    """Return whether shapes and types are as written and all numbers finite."""
    if read.top.ndim != 2 or not read.top.size:
        return False
    queries, k = read.top.shape
    similarities = (read.top, read.correct, read.random, read.component_means)
    probabilities = ((read.relevance, (queries, k)), (read.correct_relevance, (queries,)))
    return bool(
        read.random.shape in {(queries,), (0,)}
        and read.component_means.shape[:-1] == (queries,)
        and read.correct.shape == read.kept.shape == read.correct_kept.shape == (queries,)
        and all(array.dtype == np.float32 and np.isfinite(array).all() for array in similarities)
        and read.kept.dtype == np.int64
        and read.correct_kept.dtype == np.bool_
        and ((read.kept >= 0) & (read.kept <= k)).all()
        and all(
            array is None
            or (array.shape == shape and array.dtype == np.float32 and ((array >= 0) & (array <= 1)).all())
            for array, shape in probabilities
        )
    )


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of q answerable queries, the held-out ones if there are any, and of u unanswerable ones.

    Promotion compares them with the outcomes of a later release.
    """

    # (q,) uint64, the first 64 bits of the SHA-256 of the text, to match queries of two releases.
    query: NDArray[np.uint64]
    cluster: NDArray[np.int64]  # (q,) equal for queries that share a relevant document
    hit: NDArray[np.bool_]  # (q,) whether the top-K holds a relevant document
    hit_kept: NDArray[np.bool_]  # (q,) whether the kept results hold a relevant document
    ndcg: NDArray[np.float64]  # (q,) NDCG@K of the top-K
    ndcg_kept: NDArray[np.float64]  # (q,) NDCG@K of the kept results
    kept: NDArray[np.int64]  # (q,) number of kept results
    unanswerable: NDArray[np.uint64]  # (u,) like `query`
    unanswerable_kept: NDArray[np.int64]  # (u,) like `kept`

    def save(self, path: Path) -> None:
        """Write the arrays to one safetensors file."""
        write_tensors(path, {name: getattr(self, name) for name in _OUTCOME_TYPES})

    @classmethod
    def load(cls, path: Path, k: int) -> Self:
        """Read the file that `save` wrote, for queries with at most k results.

        Raises ReleaseError if it holds anything else.
        """
        arrays = read_tensors(path)
        if {*arrays} != {*_OUTCOME_TYPES} or not _are_valid_outcomes(cls(**arrays), k):
            raise ReleaseError(f"{path}: does not hold the outcomes of calibration queries; calibrate again")
        return cls(**arrays)


def _are_valid_outcomes(read: Outcomes, k: int) -> bool:
    """Return whether shapes and types are as written and the numbers possible."""
    if read.query.ndim != 1 or not read.query.size or read.unanswerable.ndim != 1:
        return False
    for name, kind in _OUTCOME_TYPES.items():
        array, rows = getattr(read, name), read.unanswerable if name.startswith("unanswerable") else read.query
        if array.dtype != kind or array.shape != rows.shape:
            return False
    return bool(
        all(((share >= 0) & (share <= 1 + 1e-9)).all() for share in (read.ndcg, read.ndcg_kept))
        and all(((kept >= 0) & (kept <= k)).all() for kept in (read.kept, read.unanswerable_kept))
        and read.cluster.min() >= 0
    )


class CurvePoint(BaseModel):
    """A threshold and its effect on the calibration queries."""

    tau: float = Field(
        description="the threshold, in units of the policy: similarity, share of the best similarity, or relevance"
    )
    kept: float = Field(ge=0, le=1, description="share of the top-K results of all calibration queries that are kept")
    loss: float = Field(
        ge=0,
        le=1,
        description="share of the answerable calibration queries that are lost: their top-K contains a relevant "
        "document, but none of the relevant ones is kept",
    )


def quantiles(similarities: Float32) -> list[float]:
    """Return the percentiles 0, 1, …, 100 of similarities of any shape, by linear interpolation."""
    return [float(value) for value in np.percentile(similarities, PERCENTILES)]


def threshold_curve(reference: Reference, kind: PolicyKind, tau: float | None) -> list[CurvePoint]:
    """Return the curve of thresholds of a policy by rising threshold, with at most 203 points.

    The points are the percentiles of the decision scores of the top-K and of the retrieved correct documents, τ itself,
    and one point above all scores. `kept` falls from 1 to 0; `loss` rises from 0 to the accuracy without a threshold.
    The curve is empty if the policy needs the relevance of the calibration queries, and the release lacks it.
    """
    score = POLICIES[kind]
    if score.needs_model and reference.relevance is None:
        return []
    top, correct = _decision_scores(reference, score)
    taus = [np.percentile(scores, PERCENTILES) for scores in (top, correct) if scores.size]
    taus.append(np.array([np.nextafter(top.max(), np.float32(np.inf))]))
    if tau is not None:
        taus.append(np.array([tau]))
    thresholds = np.unique(np.concatenate(taus).astype(np.float32))
    thresholds = thresholds[np.isfinite(thresholds)]  # a share of the best may be −∞, which JSON cannot write
    below = np.searchsorted(np.sort(top, axis=None), thresholds)  # scores equal to a threshold are kept
    lost = np.searchsorted(np.sort(correct), thresholds)
    columns = (column.tolist() for column in (thresholds, 1 - below / top.size, lost / len(top)))
    return [CurvePoint(tau=tau, kept=kept, loss=loss) for tau, kept, loss in zip(*columns, strict=True)]


def _decision_scores(reference: Reference, score: DecisionScore) -> tuple[Float32, Float32]:
    """Return the decision scores of the top-K, (q, K), and of the best relevant result, (f,) for f queries with one."""
    # The second is the highest score of a relevant document in the top-K. A cut by similarity, or relative to the best,
    # keeps the first results, so for these it is the score of the most similar relevant document.
    if reference.relevance is not None and reference.correct_relevance is not None and score.needs_model:
        return reference.relevance, reference.correct_relevance[reference.correct_relevance > 0]
    top, correct = reference.top, reference.correct
    # Both are computed by `similarity`, so the score of a retrieved document is equal to the last bit.
    hits = (top == correct[:, None]).any(axis=1)
    correct = score.decide(np.column_stack([top[:, 0], correct]), None)[:, 1]
    return score.decide(top, None), correct[hits]


class CalibrationQuestion(BaseModel):
    """A question with the values that τ and ρ are compared with. Scores are float32."""

    text: str
    kind: QuestionKind = Field(
        description="`answerable` and `unanswerable` as labelled; `off_topic` for questions about other subjects that "
        "ship with Taugate"
    )
    heldout: bool = Field(description="true if the question did not influence τ")
    values: list[float] = Field(description="value of each result of the top K that is compared with τ")
    best: float = Field(description="score of the first result")
    refusal: float | None = Field(description="score that is compared with ρ; null if questions are not refused by one")
    rank: int | None = Field(description="rank of the first relevant result; null if the top K has none")
    right: float | None = Field(description="largest value of a relevant result; null if the top K has none")

    def outcome(self, tau: float | None, rho: float | None) -> Outcome:
        """Return what becomes of the question at thresholds, None for one that is not in force; compares float32.

        With ρ, a question that is not refused keeps its first result.
        """
        if rho is not None and np.float32(self.best if self.refusal is None else self.refusal) < np.float32(rho):
            return "refused" if self.right is None else "lost"
        if self.kind != "answerable":
            return "answered" if rho is not None or any(_passes(value, tau) for value in self.values) else "refused"
        if self.right is None:
            return "missed"
        return "kept" if _passes(self.right, tau) or (rho is not None and self.rank == 1) else "lost"

    def distance(self, tau: float | None, rho: float | None) -> float:
        """Return the smallest distance of a threshold to the value that decides the outcome; infinity without any."""
        distances = [] if rho is None else [abs((self.best if self.refusal is None else self.refusal) - rho)]
        if tau is not None and self.right is not None:
            distances.append(abs(self.right - tau))
        return min(distances, default=float("inf"))


def _passes(value: float, tau: float | None) -> bool:
    return tau is None or bool(np.float32(value) >= np.float32(tau))


def write_calibration_questions(path: Path, questions: Sequence[CalibrationQuestion]) -> None:
    """Write questions, one JSON object per line."""
    path.write_bytes(b"".join(orjson.dumps(question.model_dump()) + b"\n" for question in questions))


def read_calibration_questions(path: Path) -> list[bytes]:
    """Read the lines of the file that `write_calibration_questions` wrote; none if the release has no such file.

    Raises ReleaseError if it cannot be read.
    """
    try:
        return read_bounded(path, _MAX_BYTES).splitlines()
    except FileNotFoundError:  # releases of earlier versions, and those with erased documents
        return []
    except OSError as error:
        raise ReleaseError(f"{path}: cannot be read; calibrate again") from error


def texts_of(lines: Sequence[bytes]) -> list[str]:
    """Return the texts of questions, of lines that `read_calibration_questions` returned."""
    return [orjson.loads(line)["text"] for line in lines]
