"""Golden queries and results are searched again, to tell whether encoder, index or retriever are still the same.

A threshold says nothing about the scores of another retriever: another model, another analyser, another k of a fusion.
The same retriever gives the same documents the same scores, even if a few others were added.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import orjson
from pydantic import TypeAdapter, ValidationError

from taugate.errors import InputError, ReleaseError
from taugate.policy.arrays import Float32
from taugate.release.golden import GoldenQuery
from taugate.retrieval.documents.store import Document
from taugate.retrieval.gate import Gate, ScoredResult, check_results
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.query import Query
from taugate.storage.files import read_bounded

if TYPE_CHECKING:  # loads FAISS
    from taugate.retrieval.retriever import Retriever


# A quarter of the scores may move by more than a tenth of their standard deviation. Chosen on squad_v2_dev; the numbers
# are of scifact and cosqa, in standard deviations. After 2 % of the documents were removed, BM25, cosine, RRF and
# relative fusion moved by at most .04. RRF with k = 50 instead of 60 moved by 1.8 or more, BM25 with another k1 and b
# by .21, with a stemmer by .29, a fusion with the stemmer by .19, and a smaller model by 1.4, or by .73 in a fusion.
# After 10 % were removed, BM25 moved by .04, and RRF by .13 and .17: its ranks have changed.
_QUANTILE, _TOLERANCE = 0.75, 0.1
_MIN_RETURNED = (
    0.5  # of the recorded documents; after 10 % of the documents were removed, .84 or more are still returned
)
_MAX_BYTES = 64 << 20  # a thousand times what a calibration writes
_SCORE = "score"
_ROUNDING = 1e-9  # of a limit, in questions


def as_query(golden: GoldenQuery) -> Query:
    """Return the query that searches for as many passages as recorded."""
    own = None if golden.vector is None else np.array(golden.vector, dtype=np.float32).tobytes()
    return Query(golden.text, len(golden.scores), vector=own)


def is_answered(golden: GoldenQuery, passages: Iterable[Document]) -> bool:
    """Return whether one of the passages is relevant or a chunk of a relevant document."""
    relevant = {*golden.relevant}
    return any(passage.id in relevant or passage.document_id in relevant for passage in passages)


def search(retriever: "Retriever", queries: Sequence[GoldenQuery]) -> TopK:
    """Search n ≥ 1 golden queries again, each for as many documents as recorded; returns n rows."""
    read, vectors = retriever.read([as_query(query) for query in queries])
    return retriever.index.search(retriever.with_words([query.text for query in read], vectors), len(queries[0].scores))


def differences(top: TopK, queries: Sequence[GoldenQuery], *, in_engine: bool = False) -> Float32:
    """Return how far each query's scores are from the recorded ones, (n,) float32; NaN for a NaN score.

    An index in the process finds the same documents, so this is the largest difference rank by rank. Ranks are compared
    instead of ids because documents closer than the tolerance may swap places on another processor.

    An engine may find other documents: it rebuilds its graph when it merges parts of a collection, and two equal
    searches of Milvus did not always agree among a million documents. Its scores are still exact, so most of them were
    recorded. With an engine this is the median distance of a recorded score to the nearest returned score: almost zero
    for the same encoder and vectors, and larger for any others.

    Args:
        top: Result of `search` for `queries`.
    """
    recorded = np.array([query.scores for query in queries], dtype=np.float32)
    if top.scores.shape != recorded.shape:
        raise ReleaseError(f"golden queries have {recorded.shape[1]} scores, the index has fewer documents")
    if in_engine:
        nearest = np.abs(recorded[:, :, None] - top.scores[:, None, :]).min(axis=2)
        typical: Float32 = np.median(nearest, axis=1).astype(np.float32)
        return typical
    furthest: Float32 = np.abs(top.scores - recorded).max(axis=1)
    return furthest


def overall(differences: Float32, *, in_engine: bool = False) -> float:
    """Return the difference that the tolerance limits: the largest of (n,) differences, or the median with an engine.

    If a graph search of an engine goes astray, all results of that query differ, so single queries may be far off.
    """
    return float(np.median(differences) if in_engine else differences.max())


def check(retriever: "Retriever", queries: Sequence[GoldenQuery], tolerance: float) -> None:
    """Check that golden queries score as at calibration; `tolerance`: largest allowed difference of a score."""
    in_engine = retriever.remote_passages is not None
    by_query = differences(search(retriever, queries), queries, in_engine=in_engine)
    distance = overall(by_query, in_engine=in_engine)
    if distance <= tolerance:
        return
    scores = "golden queries mostly score" if in_engine else f"golden query {int(by_query.argmax())} scores"
    raise ReleaseError(
        f"{scores} {distance:.2g} away from the record (tolerance {tolerance:g}): encoder or index differ from "
        "those of the calibration; calibrate again on this kind of machine"
    )


@dataclass(frozen=True, slots=True)
class GoldenResults:
    """A calibration query with its first K results."""

    query_id: str
    query: str | None  # its text; None if the run did not have it
    results: list[ScoredResult]
    unanswerable: bool = False  # whether no document answers it, so that it shows what a grown store refuses


@dataclass(frozen=True, slots=True)
class Deviation:
    """How far the scores of a retriever are from the recorded ones."""

    score: str  # what moved furthest beside its tolerance: `score`, or the name of a component
    moved: float  # how far a quarter of its values moved at least, on their own scale; infinite if no result has it
    tolerance: float  # how far they may move
    recorded: int
    returned: int  # number of these that the retriever still returns

    @property
    def objection(self) -> str | None:
        """Why the retriever is another one, as a sentence; None if it is the same."""
        if self.returned < _MIN_RETURNED * self.recorded:
            return f"{self.returned} of {self.recorded} recorded documents are among the results"
        if np.isinf(self.moved):
            return f"no result has the score {self.score}"
        if self.moved > self.tolerance:
            name = "scores" if self.score == _SCORE else f"scores {self.score}"
            return f"{name} moved by {self.moved:.2g} (tolerance {self.tolerance:.2g})"
        return None


def write_golden_results(path: Path, golden: Sequence[GoldenResults]) -> None:
    """Write golden questions in the format of a run, one JSON object per line."""
    answerable = {"unanswerable": False}  # is not written
    lines = (
        {name: value for name, value in asdict(question).items() if (name, value) not in answerable.items()}
        for question in golden
    )
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


def read_golden_results(path: Path) -> list[GoldenResults]:
    """Read the file that `write_golden_results` wrote. Raises ReleaseError if it holds anything else."""
    questions = TypeAdapter(GoldenResults)
    try:
        golden = [questions.validate_json(line, strict=True) for line in read_bounded(path, _MAX_BYTES).splitlines()]
        for question in golden:
            check_results(question.results)
    except (OSError, ValidationError, InputError) as error:
        raise ReleaseError(f"{path}: does not hold golden questions; calibrate again") from error
    if not golden or not all(question.results or question.unanswerable for question in golden):
        raise ReleaseError(f"{path}: does not hold golden questions; calibrate again")
    return golden


def compare(golden: Sequence[GoldenResults], live: Mapping[str, Sequence[ScoredResult]]) -> Deviation:
    """Compare the results of a retriever for the answerable questions, by query id, with the recorded ones."""
    for question in golden:
        if question.query_id not in live:
            raise InputError(f"queries: results of the golden question {question.query_id!r} are missing")
        check_results(live[question.query_id])
    golden = [question for question in golden if not question.unanswerable]
    pairs = list(_pairs(golden, live))
    recorded = sum(len(question.results) for question in golden)
    names = sorted({name for question in golden for result in question.results for name in result.scores or ()})
    columns = {_SCORE: np.array([(old.score, new.score) for old, new in pairs], dtype=np.float32).reshape(-1, 2)}
    for name in names:
        both = [(old.component(name), new.component(name)) for old, new in pairs]
        columns[name] = np.array([pair for pair in both if not np.isnan(pair).any()], dtype=np.float32).reshape(-1, 2)
    moves = [(name, _moved(column), _tolerance(golden, name)) for name, column in columns.items()]
    name, moved, tolerance = max(moves, key=lambda move: move[1] / move[2])
    return Deviation(name, moved, tolerance, recorded, len(pairs))


def grown_store(golden: Sequence[GoldenResults], live: Mapping[str, Sequence[ScoredResult]], gate: Gate) -> str | None:
    """Say that more questions without an answer get a result than the release promises; None if they do not."""
    # More than at the calibration, too: these are only some of the questions that were counted.
    promised, questions = _promised(gate), [question for question in golden if question.unanswerable]
    if promised is None or not questions:
        return None
    (kind, limit), (before, now) = (
        promised,
        (
            sum(bool(gate.cut(results).results) for results in lists)
            for lists in (
                [question.results for question in questions],
                [live[question.query_id] for question in questions],
            )
        ),
    )
    if now <= max(before, limit * len(questions) + _ROUNDING):
        return None
    return (
        f"{now} of {len(questions)} {kind} get a result, {before} at the calibration, which promised a share of at "
        f"most {limit:.2g}"
    )


def _promised(gate: Gate) -> tuple[str, float] | None:
    """Return which questions without an answer get a result at most how often; None if nothing is promised."""
    refusal = gate.manifest.refusal
    if refusal is None or refusal.rho is None:
        return None
    if refusal.limits is not None:
        limit = refusal.limits.answered.asked
        return None if limit is None else ("unanswerable questions", limit)
    lower = min(counted.lower for kind, counted in refusal.evidence.items() if kind in {"off_topic", "request"})
    return "off-topic questions and short requests", 1 - lower


def _pairs(
    golden: Sequence[GoldenResults], live: Mapping[str, Sequence[ScoredResult]]
) -> Iterator[tuple[ScoredResult, ScoredResult]]:
    """Yield recorded results with the live results for the same query and document."""
    for question in golden:
        results = {result.id: result for result in live[question.query_id]}
        for recorded in question.results:
            if recorded.id in results:
                yield recorded, results[recorded.id]


def _moved(column: Float32) -> float:
    """Return how far a quarter of the values moved at least, given (n, 2) float32 recorded and live values."""
    return float(np.quantile(np.abs(column[:, 1] - column[:, 0]), _QUANTILE)) if len(column) else np.inf


def _tolerance(golden: Sequence[GoldenResults], name: str) -> float:
    """Return how far the values of a score may move; positive even if all are equal."""
    results = [result for question in golden for result in question.results]
    values = [result.score if name == _SCORE else result.component(name) for result in results]
    return max(
        _TOLERANCE * float(np.nanstd(values)), float(np.finfo(np.float32).eps) * float(np.nanmax(np.abs(values)))
    )
