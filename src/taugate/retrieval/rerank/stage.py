"""The second stage of a search: the candidates of the first in the order of a reranker's scores, and its interface.

It has its own threshold, calibrated on its own scores. If a query's scores do not come in time, or at all, the query
has the first stage's results with the first stage's threshold, never some of each.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from taugate.errors import EncoderError, OtherReranker, RerankerUnavailable, TaugateError
from taugate.policy.abstention import AnswerRule
from taugate.policy.arrays import Float32
from taugate.policy.policy import Policy
from taugate.policy.score_relevance import ScoreRelevance
from taugate.release.search_records import KnownPair
from taugate.retrieval.documents.store import Documents
from taugate.retrieval.index.top_k import Candidate, TopK
from taugate.retrieval.query import Skipped
from taugate.storage.files import read_bounded, sha256_files

Config = TypeVar("Config", bound=BaseModel)
_log = logging.getLogger(__name__)

FIRST_SCORE = "first_stage"  # name of the first stage's score in the model of relevance
# After a failure, queries go without the second stage for a while, which doubles with every further failure: a quarter
# of a second lets a short queue drain, and four seconds are what a restarted endpoint is missed at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 4.0
# Seconds for callers without a deadline, such as an explanation, which a stalled endpoint must not hold for minutes.
_PATIENCE = 30.0
_SMOOTHING = 0.2  # weight of the latest duration in the mean of the past ones


class PairScorer(Protocol):
    """What all kinds of rerankers have."""

    @property
    def parallel(self) -> int:
        """How many queries are scored at the same time; 1 if one query already uses all processors."""
        ...

    def forget(self) -> None:
        """Forget scores that it remembers."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...


class Reranker(PairScorer, Protocol):
    """Scores how well documents answer a query. `score` may be called by several threads."""

    def score(self, query: str, positions: NDArray[np.int64], deadline: float | None = None) -> Float32:
        """Score n documents.

        Args:
            positions: (n,) int64 positions of the documents.
            deadline: Time of `time.monotonic` after which nobody needs the scores; None to take as long as necessary.

        Returns:
            (n,) float32 finite scores, higher is better.

        Raises:
            RerankerUnavailable: If there are no scores, or not in time.
        """
        ...

    def reading(self, candidates: Mapping[int, Candidate]) -> "Reranker":
        """Return the same for documents that are all among `candidates`, which an engine has returned."""
        ...


class TextScorer(PairScorer, Protocol):
    """Scores the pairs of a query and several texts. `score` may be called by several threads."""

    def score(self, query: str, texts: Sequence[str], deadline: float | None = None) -> Float32:
        """Score the pairs of a query and n texts, (n,) float32; otherwise like `Reranker.score`."""
        ...


@dataclass(frozen=True)
class TextReranker:
    """Reads the texts of documents, and has them scored."""

    scorer: TextScorer
    documents: Documents
    # what an engine has returned of them already, by position; empty to read all from `documents`
    candidates: Mapping[int, Candidate] = field(default_factory=dict)

    def reading(self, candidates: Mapping[int, Candidate]) -> Self:
        """See `Reranker`."""
        return replace(self, candidates=candidates)

    @property
    def parallel(self) -> int:
        """See `PairScorer`."""
        return self.scorer.parallel

    def score(self, query: str, positions: NDArray[np.int64], deadline: float | None = None) -> Float32:
        """See `Reranker`."""
        if self.candidates:
            documents = [self.candidates[position].document for position in positions.tolist()]
        else:
            documents = self.documents.at(positions)
        texts = [document.encoded_text for document in documents]
        return self.scorer.score(query, texts, deadline)

    def forget(self) -> None:
        """See `PairScorer`."""
        self.scorer.forget()

    def close(self) -> None:
        """See `PairScorer`."""
        self.scorer.close()


def read_exported(
    folder: Path, config: type[Config], file: str, files: Sequence[str], model: str
) -> tuple[Config, str]:
    """Read the configuration of an exported model, and the digest of its files."""
    try:
        read = config.model_validate_json(read_bounded(folder / file, 1 << 20))
        return read, sha256_files(folder, [name for name in files if (folder / name).is_file()])
    except (OSError, ValidationError) as error:
        raise EncoderError(
            f"{folder / file}: not the configuration of a {model}, or it cannot be read; export the {model} again"
        ) from error


def checked_scores(scores: Float32, texts: int, name: str) -> Float32:
    """Return scores, (n,) float32, if there is a finite one for each text; raises RerankerUnavailable if not."""
    if scores.shape != (texts,) or not np.isfinite(scores).all():
        raise RerankerUnavailable(f"{name}: does not give {texts} texts one finite score each; use another model")
    return scores


class Ranked(NamedTuple):
    """The candidates of one query in the order of the second stage."""

    positions: NDArray[np.int64]  # (c,) int64 positions of the candidates, best first
    scores: Float32  # (c,) float32 scores of the second stage
    first_scores: Float32  # (c,) float32 scores of the first stage


def combined(scores: Float32, first: Float32, weight: float) -> Float32:
    """Return the scores that rank: a reranker's, and the first stage's of the same shape times its weight."""
    return scores + (np.float32(weight) * first).astype(np.float32) if weight else scores


def rank(scores: Float32, top: TopK) -> TopK:
    """Order the (n, c) candidates of n queries by new scores; equal scores keep the order of the first stage."""
    order = np.argsort(-scores, axis=1, kind="stable")
    return TopK(np.take_along_axis(scores, order, axis=1), np.take_along_axis(top.positions, order, axis=1))


@dataclass(frozen=True)
class SecondStageRule:
    """What was calibrated on the scores of the second stage."""

    candidates: int
    policy: Policy
    relevance: ScoreRelevance | None  # model of relevance; None without one
    abstention: AnswerRule | None  # rule that refuses queries; None if none is refused
    first_stage_weight: float = 0.0  # weight of the first stage's score in the score of this stage


class SecondStage:
    """Ranks candidates by a reranker. May be called by several threads."""

    def __init__(
        self,
        rule: SecondStageRule,
        reranker: Reranker,
        documents: Documents,
        known: Sequence[KnownPair] = (),
        tolerance: float = 1e-4,
    ) -> None:
        """Prepare the stage.

        Args:
            documents: Documents by position, of the known pairs.
            known: Pairs with their scores at calibration. They are compared again after a failure, because another
                model may answer at the endpoint then.
            tolerance: Largest allowed difference of a score.
        """
        self.rule, self.reranker = rule, reranker
        self._documents, self._known, self._tolerance = documents, known, tolerance
        self._threads = ThreadPoolExecutor(reranker.parallel, "taugate-second-stage") if reranker.parallel > 1 else None
        self._lock = threading.Lock()  # of what follows
        self._pause = self._paused_until = self._typical = 0.0

    def check(self, deadline: float | None = None) -> None:
        """Compare the known pairs with their scores at calibration."""
        self.reranker.forget()
        for pair in self._known:
            position = self._documents.positions(pair.document)[:1]
            if not len(position):
                continue
            (score,) = self.reranker.score(pair.query, position, deadline)
            if not abs(float(score) - pair.score) <= self._tolerance:
                raise OtherReranker(
                    f"the reranker gives a pair of the calibration {score:.6g}, not {pair.score:.6g}: another model "
                    "answers; start the one that was calibrated, or calibrate again"
                )

    def pause(self) -> None:
        """Let queries go without this stage for a while; then the known pairs are compared before it is used again."""
        with self._lock:
            if time.monotonic() < self._paused_until:  # of queries that fail together, one counts
                return
            self._pause = min(_LONGEST_PAUSE, max(_FIRST_PAUSE, 2 * self._pause))
            self._paused_until = time.monotonic() + self._pause

    def skips(self, query: str, deadline: float | None) -> Skipped | None:
        """Return why a query goes without this stage, which needs no candidates then; None if it does not."""
        if not query:
            return "no_text"
        began = time.monotonic()
        with self._lock:
            if began < self._paused_until:
                return "paused"
            if deadline is None or began + self._typical < deadline:
                return None
            self._typical *= 1 - _SMOOTHING  # less and less, so that a stage that was slow once is tried again
        return "deadline"

    def rank(
        self, queries: Sequence[str], top: TopK, deadlines: Sequence[float | None]
    ) -> tuple[dict[int, Ranked], dict[int, Skipped]]:
        """Rank the candidates of n queries.

        Returns the rankings of queries by their places, and why other queries have none.

        Args:
            top: Their (n, c) candidates of the first stage, best first. Contents that an engine returned with them are
                not read again.
            deadlines: Times of `time.monotonic` by which each query needs its scores; None for one that is far away.
        """
        far = time.monotonic() + _PATIENCE
        limits = [far if deadline is None else deadline for deadline in deadlines]
        reranker = self.reranker.reading(top.candidates) if top.candidates else self.reranker
        ranked: dict[int, Ranked] = {}
        skipped: dict[int, Skipped] = {}

        def one(row: int) -> Ranked | Skipped:
            return self._rank(reranker, queries[row], top.positions[row], top.scores[row], limits[row])

        rows = range(len(queries))
        if self._threads is None:
            outcomes = [one(row) for row in rows]
        else:
            waiting = [self._threads.submit(one, row) for row in rows]
            outcomes = [self._in_time(outcome, limit) for outcome, limit in zip(waiting, limits, strict=True)]
        for row, outcome in enumerate(outcomes):
            if isinstance(outcome, str):
                skipped[row] = outcome
            else:
                ranked[row] = outcome
        return ranked, skipped

    def close(self) -> None:
        """End the threads, and close the reranker."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self.reranker.close()

    def _rank(
        self, reranker: Reranker, query: str, positions: NDArray[np.int64], first: Float32, deadline: float
    ) -> Ranked | Skipped:
        if not len(positions):
            return Ranked(positions, first, first)
        if skipped := self.skips(query, deadline):
            return skipped
        began, failing = time.monotonic(), self._pause > 0
        try:
            if failing:
                self.check(deadline)
            scores = combined(reranker.score(query, positions, deadline), first, self.rule.first_stage_weight)
        except Exception as error:  # noqa: BLE001 (whatever a model or an endpoint does, the first stage can answer)
            in_time = time.monotonic() < deadline
            if not failing:
                _log.warning(
                    "second stage skipped; answering with the first stage",
                    exc_info=None if isinstance(error, TaugateError) else error,
                    extra={"fields": {"reason": str(error) or type(error).__name__}},
                )
            self.pause()
            return "failed" if in_time else "deadline"
        with self._lock:
            self._pause = 0.0
            if len(positions) > 1:  # the random document of ROE takes less time than candidates do
                self._typical += _SMOOTHING * (time.monotonic() - began - self._typical)
        order = np.argsort(-scores, kind="stable")
        return Ranked(positions[order], scores[order], first[order])

    def _in_time(self, ranked: "Future[Ranked | Skipped]", deadline: float) -> Ranked | Skipped:
        """Wait for a ranking until its deadline, whatever the reranker is waiting for."""
        try:
            return ranked.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            if not ranked.cancel():
                self.pause()
            return "deadline"
