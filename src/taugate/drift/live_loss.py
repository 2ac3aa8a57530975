"""Live loss: bounds of the answers that τ or ρ lose, and of unanswerable queries that are answered, from judged draws.

Of a drawn query a judge sees all K results, also those that were dropped. *Answerable* is a query with a relevant
result among them, *lost* an answerable one of which no relevant result was kept, *wrongly answered* one that was
answered although none is relevant. People's judgements are taken as true. Those of a language model may direct which
queries people see; as evidence of their own they are corrected by the model's sensitivity and specificity, which are
measured on what people judged, too. All of these shares have confidence sequences of their own, whose errors add up to
5 %.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from taugate.drift.sequences import CONFIDENCE, Draw, LiveShare, Outcome, ShareBounds
from taugate.policy.arrays import Float32, Float64
from taugate.release.manifest import ReleaseManifest
from taugate.release.queries import Reference

_LEVEL = 1 - CONFIDENCE
_OF_PEOPLE = 0.6  # share of the level that people's judgements get if a model judges, too
_NEIGHBOURS = 50  # calibration queries that a prediction averages
_UNSURE = 0.01  # least probability that is predicted: nothing is certain
_UNKNOWN = -1  # in place of labels that were not given
MAX_JUDGED = 20_000  # judgements that are kept, 1 MB: at 50 a day, a release's first year

# One judgement, as replicas share it: the query, who judged, labels, the other judge's labels, numbers of the draw.
JUDGED = np.dtype(
    [
        ("id", "<u8"),
        ("cluster", "<u8"),
        ("model", "?"),
        ("labels", "i1", 3),
        ("other", "i1", 3),
        ("scale", "<f4"),
        ("sums", "<f4", 8),
    ]
)
JudgedDraws = NDArray[np.void]


def promised_loss(manifest: ReleaseManifest) -> float | None:
    """Return the certified limit of lost answers, as a share of the queries with an answer among the K results.

    The certificate counts all answerable queries. Live, those whose answer is not among the results cannot be told from
    unanswerable ones, so the limit is divided by the accuracy at calibration. None if nothing is certified.
    """
    if (certified := manifest.certified) is None:
        return None
    accuracy = manifest.metrics["calibration"].accuracy.mean
    return min(1.0, certified.max_loss / max(accuracy, certified.max_loss))


class Labels(NamedTuple):
    """What a judge says of a query: whether its answer is lost, whether it is answerable, and wrongly answered."""

    lost: bool
    answerable: bool
    wrong: bool

    @classmethod
    def of(cls, relevant: Sequence[bool], kept: Sequence[bool]) -> Self:
        """Derive them from all results of a query: which are relevant, and which were kept."""
        answerable = any(relevant)
        found = any(is_relevant and is_kept for is_relevant, is_kept in zip(relevant, kept, strict=True))
        return cls(answerable and not found, answerable, any(kept) and not answerable)


class Prediction(NamedTuple):
    """Probabilities of the labels of a query, before it is judged."""

    lost: float
    answerable: float
    wrong: float

    @property
    def outcomes(self) -> tuple[Outcome, Outcome]:
        """Lost answers over answerable queries, and wrongly answered queries over all."""
        return Outcome(self.lost, self.answerable), Outcome(self.wrong, 1.0)

    @property
    def interest(self) -> float:
        """How much a judgement may tell: proportional to the deviation of the label (Neyman, 1934)."""
        return math.sqrt(max(self.lost, self.wrong, _UNSURE))


class Predictor:
    """Predicts labels from the best score, as of the calibration queries with the nearest best scores."""

    def __init__(self, reference: Reference) -> None:
        order = np.argsort(reference.top[:, 0], kind="stable")
        self._best: Float32 = reference.top[order, 0]
        lost = np.concatenate([[0.0], np.cumsum(~reference.correct_kept[order])])
        self._lost: Float64 = lost

    def predict(self, best: float, kept: int) -> Prediction:
        """Return the prediction for a query with a best score, of which so many results were kept."""
        n = len(self._best)
        place = int(np.searchsorted(self._best, best))
        first = max(0, min(place - _NEIGHBOURS // 2, n - _NEIGHBOURS))
        last = min(n, first + _NEIGHBOURS)
        lost = float(self._lost[last] - self._lost[first]) / max(last - first, 1)
        # Calibration queries have an answer. One whose best score few of them are below probably has none.
        answerable = min(0.95, 0.2 + 7.5 * place / max(n, 1))
        lost = max(lost, _UNSURE) * answerable if kept else max(0.5, lost) * answerable
        return Prediction(min(lost, answerable), answerable, (1 - answerable) / 2 if kept else 0.0)


def by_model(labels: Labels, limit: float) -> Prediction:
    """Return the prediction for a query that a model has judged, which is right more often than not.

    It takes the model to be wrong in .15. If that is wrong, the bounds are wider, but as valid.
    """
    lost, wrong = (
        (0.85 * share if claim else 0.15 * share)
        / ((0.85 if claim else 0.15) * share + (0.15 if claim else 0.85) * (1 - share))
        for claim, share in ((labels.lost, limit), (labels.wrong, 0.05))
    )
    return Prediction(lost, 0.97 if labels.answerable else 0.5, wrong)


def judged_draw(draw: Draw, labels: Labels, *, model: bool, other: Labels | None = None) -> JudgedDraws:
    """Return a judgement as one row of JUDGED; `other` is what the other judge, model or people, says of the query."""
    sums = [number for share in zip(draw.predicted, draw.since, strict=True) for pair in share for number in pair]
    row = np.zeros(1, JUDGED)
    row[0] = (0, draw.cluster, model, labels, (_UNKNOWN,) * 3 if other is None else other, draw.scale, sums)
    return row


def read_judged(packed: bytes) -> JudgedDraws:
    """Parse rows of JUDGED; raises ValueError if they are none, as other clients can write to Redis."""
    rows: JudgedDraws = np.frombuffer(packed, JUDGED)
    sums, scale = rows["sums"], rows["scale"]
    if not (((sums >= 0) & (sums <= 2)).all() and ((scale > 0) & (scale <= 1)).all() and (rows["labels"] >= 0).all()):
        raise ValueError("not judged draws")
    return rows


class LiveLoss:
    """The bounds of one release, from its judged draws in the order of their judgements."""

    def __init__(self, limit: float | None, *, model: bool = False) -> None:
        """Start without judgements.

        `limit` is that of lost answers, as a share of the answerable queries; None if nothing is certified. `model`: a
        language model judges as well.
        """
        self.limit = limit
        level = _LEVEL * (_OF_PEOPLE if model else 1)
        self.lost, self.wrong = LiveShare(level, limit), LiveShare(level)
        self.judged = 0  # draws that people judged
        level_of_model = _LEVEL * (1 - _OF_PEOPLE) / 9
        # For each label: its share among the model's, its sensitivity, and the share that it gives wrongly.
        self._model = [[LiveShare(level_of_model) for _ in range(3)] for _ in range(3)] if model else []

    def add(self, rows: JudgedDraws) -> None:
        """Add judgements."""
        for row in rows:
            numbers = row["sums"].astype(np.float64).reshape(2, 2, 2)
            predicted, since = ([Outcome(*share[part].tolist()) for share in numbers] for part in (0, 1))
            draw = Draw(int(row["cluster"]), float(row["scale"]), tuple(predicted), tuple(since))
            labels, other = row["labels"].tolist(), row["other"].tolist()
            if row["model"]:
                self._add_of_model(draw, labels)
                continue
            self.judged += 1
            self.lost.add(draw.cluster, draw.unit(0, Outcome(labels[0], labels[1])))
            self.wrong.add(draw.cluster, draw.unit(1, Outcome(labels[2], 1.0)))
            if self._model and other[0] != _UNKNOWN:
                self.measure(draw, labels, other)

    def measure(self, draw: Draw, labels: Sequence[int], claims: Sequence[int]) -> None:
        """Learn how often the model is right, from a query that people have judged as well."""
        for (_, sensitivity, errors), true, claim in zip(self._model, labels, claims, strict=True):
            for rate, counts in ((sensitivity, true), (errors, 1 - true)):
                unit = np.array([counts * claim, counts, 0.0, 0.0, 1.0])
                rate.add(draw.cluster, unit * [draw.scale, draw.scale, 1, 1, 1])

    def _add_of_model(self, draw: Draw, labels: Sequence[int]) -> None:
        (lost, wrong), (lost_since, wrong_since) = draw.predicted, draw.since
        predictions = ((lost.y, lost_since.y), (0.0, 0.0), (wrong.y, wrong_since.y))
        for (share, _, _), claim, (predicted, since) in zip(self._model, labels, predictions, strict=True):
            own = Draw(draw.cluster, draw.scale, (Outcome(predicted, wrong.x),), (Outcome(since, wrong_since.x),))
            share.add(draw.cluster, own.unit(0, Outcome(claim, 1.0)))

    def loss(self, *, recent: bool = False) -> ShareBounds:
        """Bounds of lost answers as a share of the answerable queries, since the release or of recent traffic."""
        of_people = self.lost.recent if recent else self.lost.all.interval
        if not self._model:
            return of_people
        lost, answerable = (self._corrected(place, recent=recent) for place in (0, 1))
        upper = min(1.0, lost.upper / answerable.lower) if answerable.lower else 1.0
        return of_people.intersected(ShareBounds(lost.lower / max(answerable.upper, lost.lower, 1e-9), upper))

    def wrongly_answered(self, *, recent: bool = False) -> ShareBounds:
        """Bounds of wrongly answered queries as a share of all queries."""
        of_people = self.wrong.recent if recent else self.wrong.all.interval
        return of_people.intersected(self._corrected(2, recent=recent)) if self._model else of_people

    def _corrected(self, place: int, *, recent: bool) -> ShareBounds:
        """Return bounds of a share from the model's, by what is known of its errors (Rogan and Gladen, 1978)."""
        share, sensitivity, errors = self._model[place]
        claims = share.recent if recent else share.all.interval
        return corrected(claims, sensitivity.all.interval, errors.all.interval)

    @property
    def lower(self) -> float:
        """The lower bound of lost answers that an alert compares with the limit: the larger of both sequences."""
        return max(self.loss().lower, self.loss(recent=True).lower)

    @property
    def judgements_to_go(self) -> float:
        """Judgements until the upper bound is below the limit, at the present rate; NaN without a limit."""
        return self.lost.judgements_to_go


def corrected(claims: ShareBounds, sensitivity: ShareBounds, errors: ShareBounds) -> ShareBounds:
    """Return bounds of the true share, from those of the share that a judge claims, and of how often it is right.

    The share that is claimed is p·sensitivity + (1 − p)·errors; p falls as either rises.
    """
    lower, upper = 0.0, 1.0
    if sensitivity.upper > errors.upper:
        lower = min(1.0, max(0.0, (claims.lower - errors.upper) / (sensitivity.upper - errors.upper)))
    if sensitivity.lower > errors.lower:
        upper = min(1.0, max(0.0, (claims.upper - errors.lower) / (sensitivity.lower - errors.lower)))
    return ShareBounds(lower, max(lower, upper))
