"""Draws live queries to be judged (TAUGATE_JUDGE_SHARE), and follows what their judgements say of the promised loss."""

import logging
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from taugate.drift.drawn import DrawnLog, DrawnQuery, DrawnResult, append, drawn_log
from taugate.drift.live_loss import MAX_JUDGED, JudgedDraws, LiveLoss, Predictor, promised_loss, read_judged
from taugate.drift.sequences import Draw, Sampler, ShareBounds
from taugate.errors import TaugateError
from taugate.retrieval.query import Answer, Query
from taugate.service.drift.endpoint_judge import EndpointJudge
from taugate.service.drift.query_log import ServedReply, WatchedRelease, forget_old_texts
from taugate.service.metrics import MetricGroup, gauge
from taugate.service.settings import Settings

if TYPE_CHECKING:  # loads redis-py, which a service without Redis does not need
    from taugate.service.replicas import Fleet

_log = logging.getLogger(__name__)
_EVERY_SECONDS = 5.0  # between two looks at the log
_KIND = "judged"  # of the judgements that replicas share


class Searcher(Protocol):
    """Searches again for a drawn query, for the results that its reply did not show."""

    def search(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer queries."""
        ...


class LossGauges(MetricGroup):
    """Metrics of the live loss of one release; absent from a service that draws no queries."""

    loss = gauge(
        "taugate_live_loss",
        "Answers lost to τ or ρ as a share of answerable queries: 95 % bounds that hold at all times, for all traffic "
        "since the release, and recent.",
        "bound",
    )
    promised = gauge("taugate_live_loss_promised", "Limit of lost answers that the release promises; NaN without one.")
    wrong = gauge(
        "taugate_live_unanswerable_answered",
        "Queries answered although no result is relevant, as a share of all: 95 % bounds that hold at all times.",
        "bound",
    )
    to_go = gauge(
        "taugate_live_judgements_to_go",
        "Judgements until the upper bound of lost answers is below the promise, at the present rate.",
    )
    judged = gauge("taugate_live_judgements", "Drawn queries that people have judged.", mode="livemax")
    waiting = gauge("taugate_live_judgements_waiting", "Drawn queries that wait for a judge.", mode="livemax")


class LiveJudging:
    """Draws queries of one release, and follows their judgements. Belongs to one thread at a time.

    Attributes:
        bounds: Bounds of lost answers; None before the first judgement.
    """

    def __init__(
        self,
        release: WatchedRelease,
        searcher: Searcher,
        settings: Settings,
        registry: CollectorRegistry,
        fleet: "Fleet | None",
    ) -> None:
        """Read the judgements that are in the log, and go on."""
        drift = settings.drift
        if drift.query_log is None or release.documents is None:
            raise ValueError("queries are drawn into a file beside the query log, with the results of the release")
        self._release, self._searcher, self._fleet = release, searcher, fleet
        self._release_id, self._documents = release.manifest.release_id, release.documents
        self._predictor, self._sampler = Predictor(release.reference), Sampler(drift.judge_share)
        self._rng = np.random.default_rng()
        self._limit, self._has_model = promised_loss(release.manifest), drift.judge_url is not None
        self.log = DrawnLog(drawn_log(drift.query_log), self._release_id)
        self.reading = threading.Lock()  # of `log`, which the endpoint judge reads too
        self._days = drift.query_log_days
        self._gauges = LossGauges(registry)
        self._gauges.promised.set(math.nan if self._limit is None else self._limit)
        self._counted = np.zeros(0, dtype=np.uint64)
        self.live, self.bounds = LiveLoss(self._limit, model=self._has_model), ShareBounds()
        self.judged = False
        self._broken = False
        self._looked_at = -math.inf
        self._judge = None
        if self._has_model:
            self._judge = EndpointJudge(self.log, self.reading, self._documents, drift, self._limit or 0.05)
        self._show()

    def close(self) -> None:
        """End the endpoint judge."""
        if self._judge is not None:
            self._judge.close()

    def offer(self, served: Sequence[ServedReply]) -> None:
        """Draw from replies, and look for judgements if that is due."""
        drawn = [pair for reply in served if (pair := self._draw(reply)) is not None]
        if drawn:
            try:
                self._write(drawn)
            except (TaugateError, OSError) as error:  # of the engine, the encoder or the disk
                _log.error("cannot log drawn queries", extra={"fields": {"reason": str(error)}})
        if time.monotonic() >= self._looked_at + _EVERY_SECONDS:
            self._looked_at = time.monotonic()
            self.follow()

    def forget_old_texts(self) -> None:
        """Hash texts as old as those that the query log hashes."""
        if self._days is not None:
            forget_old_texts(self.log.path, self._days, time.time())

    def _draw(self, reply: ServedReply) -> tuple[ServedReply, Draw, float] | None:
        record = reply.record
        if record.not_comparable is not None or not len(record.similarities) or not reply.query.text:
            return None
        prediction = self._predictor.predict(float(record.similarities[0]), record.uncut_kept)
        propensity = self._sampler.propensity(prediction.interest)
        # Queries with the same best result are one cluster, whatever their words.
        cluster = int(np.float32(record.similarities[0]).view(np.uint32))
        if len(kept := record.results["position"]):
            cluster = 1 << 40 | int(kept[0])
        draw = self._sampler.offer(cluster, prediction.outcomes, propensity, self._rng.random())
        return None if draw is None else (reply, draw, propensity)

    def _write(self, drawn: Sequence[tuple[ServedReply, Draw, float]]) -> None:
        """Search for all K results of the drawn queries, and append them to the log."""
        # A threshold below every score shows all results, those of refused queries too.
        everything = [
            replace(reply.query, threshold=-math.inf, exploration=None, min_results=0, with_parts=False)
            for reply, _, _ in drawn
        ]
        records = []
        for (reply, draw, propensity), answer in zip(drawn, self._searcher.search(everything), strict=True):
            shown = reply.record.results
            kept = {*shown["position"][shown["kept"]].tolist()}
            documents = self._documents.at(answer.positions)
            records.append(
                DrawnQuery(
                    at=reply.at,
                    query_id=reply.query_id,
                    release=self._release_id,
                    key=reply.key,
                    query=reply.query.text,
                    propensity=propensity,
                    draw=draw,
                    results=[
                        DrawnResult(document.id, position, score, position in kept)
                        for document, score, position in zip(
                            documents, answer.scores.tolist(), answer.positions.tolist(), strict=True
                        )
                    ],
                )
            )
        append(self.log.path, records)

    def follow(self) -> None:
        """Count new judgements, of this service and of other replicas."""
        try:
            with self.reading:
                self.log.follow()
                rows = self.log.rows
        except OSError as error:
            _log.error("cannot read the log of drawn queries", extra={"fields": {"reason": str(error)}})
            return
        rows = self._shared(rows)
        new = rows[~np.isin(_identity(rows), self._counted)]
        if len(new):
            self.live.add(new)
            self._counted = np.concatenate([self._counted, _identity(new)])
            self._judged()
        self._show()

    def _shared(self, rows: JudgedDraws) -> JudgedDraws:
        """Add judgements to those of all replicas, and return them all, in the same order for each."""
        if self._fleet is None:
            return rows
        shared = [rows]

        def work(stored: bytes | None) -> bytes | None:
            before = rows[:0]
            try:
                before = read_judged(stored or b"")
            except ValueError:
                _log.warning("the judgements that replicas share are damaged; replaced by those of this replica")
            own = rows[~np.isin(_identity(rows), _identity(before))]
            shared[0] = np.concatenate([before, own])[:MAX_JUDGED]
            return shared[0].tobytes() if len(own) and len(before) < MAX_JUDGED else None

        self._fleet.change(_KIND, work)
        return shared[0]

    def _judged(self) -> None:
        self.bounds, self.judged = self.live.loss(), True
        broken = self._limit is not None and self.live.lower >= self._limit
        if broken and not self._broken:
            words = {"lost_at_least": self.live.lower, "promised": self._limit, "judgements": self.live.judged}
            _log.error("promise broken: more answers are lost than promised", extra={"fields": words})
        self._broken = broken

    def _show(self) -> None:
        gauges, live = self._gauges, self.live
        for figure, bounds in ((gauges.loss, live.loss), (gauges.wrong, live.wrongly_answered)):
            for prefix, interval in (("", bounds()), ("recent_", bounds(recent=True))):
                figure.labels(f"{prefix}lower").set(interval.lower)
                figure.labels(f"{prefix}upper").set(interval.upper)
        gauges.to_go.set(live.judgements_to_go)
        gauges.judged.set(live.judged)
        gauges.waiting.set(sum(1 for _ in self.log.waiting(model=False, directed=self._has_model)))


def _identity(rows: JudgedDraws) -> NDArray[np.uint64]:
    """Return a number for each judgement, (n,) uint64: the query's, and whether people or the endpoint judged."""
    identity: NDArray[np.uint64] = np.bitwise_xor(rows["id"], rows["model"].astype(np.uint64) << np.uint64(63))
    return identity
