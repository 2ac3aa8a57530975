"""The tables of the report: numbers of each part, drift, and the query set, every value as the manifest has it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taugate.calibration.charts.numbers import METRICS, count, fixed, spread
from taugate.retrieval.release.evidence import DriftRecord, Estimate, Interval, Shift
from taugate.retrieval.release.manifest import MetricsRecord
from taugate.retrieval.release.records import QuerySetRecord

_ABOUT = {
    "accuracy": "queries with a relevant document among the top {k}, without a cut",
    "accuracy_at_tau": "the same among what is kept",
    "ndcg": "how high up the relevant documents are, without a cut",
    "ndcg_at_tau": "the same for what the cut keeps",
    "coe": "correct documents above θ: the higher the better",
    "roe": "random documents above θ: the lower the better",
}

_DRIFT = {
    "topk_similarity": ("similarity", "of all results of all queries"),
    "coe": ("COE", "judged documents above θ, within as many judgements"),
    "roe": ("ROE", "random documents above θ"),
    "empty_responses": ("empty", "searches that get no result"),
    "dropped_share": ("dropped", "results that the threshold drops"),
}


@dataclass(frozen=True)
class TableLine:
    """One line of a table.

    name: what it is; about: what that means; values: as they are written, each with its interval.
    """

    name: str
    about: str
    values: list[tuple[str, str]]


def metric_lines(metrics: Mapping[str, MetricsRecord], k: int) -> list[TableLine]:
    """Return a line for each metric, with a value for each part of the queries; metrics: of the parts; k: K."""
    parts = list(metrics.values())
    lines = [
        TableLine(name.format(k=k), _ABOUT[key].format(k=k), [_estimate(getattr(part, key)) for part in parts])
        for key, name in METRICS.items()
    ]
    rest: list[tuple[str, str, Sequence[float | None]]] = [
        ("results kept", "of all results", [part.kept_fraction for part in parts]),
        ("answerable empty", "queries that have an answer and get nothing", _abstention(parts, "answerable_empty")),
        ("unanswerable empty", "queries without one that get nothing", _abstention(parts, "unanswerable_empty")),
        ("AUROC", "how well the best score tells the two apart; 0.5 is guessing", _abstention(parts, "auroc")),
        (
            "AURC",
            "wrong answers, over all shares of queries answered; the more are unanswerable the higher",
            _abstention(parts, "aurc"),
        ),
    ]
    return lines + [TableLine(name, about, [(fixed(value), "") for value in values]) for name, about, values in rest]


def _estimate(value: Interval) -> tuple[str, str]:
    by_document = value.by_document if isinstance(value, Estimate) else None
    more = "" if by_document is None else f" by document {spread(by_document)}"
    return fixed(value.mean), f"{spread(value)}{more}"


def _abstention(parts: list[MetricsRecord], key: str) -> list[float | None]:
    return [getattr(part.abstention, key) for part in parts]


def drift_lines(record: DriftRecord) -> list[TableLine]:
    """Return the smallest shift, down and up, that each alarm finds; record: of the alarms."""
    return [
        TableLine(name, about, [_shift(record.signals[key].lower), _shift(record.signals[key].higher)])
        for key, (name, about) in _DRIFT.items()
    ]


def _shift(shift: Shift | None) -> tuple[str, str]:
    return (fixed(None), "") if shift is None else (fixed(abs(shift.points)), f"({fixed(abs(shift.effect), 2)})")


def query_set_lines(record: QuerySetRecord, queries: int, k: int) -> list[TableLine]:
    """Return a line for each figure of the query set.

    record: of the query set; queries: how many calibrate; k: K.
    """
    lines = [
        ("calibration queries", "answerable ones, in this part", count(queries)),
        ("repeated queries", "whose text occurred before", count(record.duplicate_queries)),
        ("clusters", "groups of queries that share relevant documents", count(record.clusters)),
        (
            "correlation within a cluster",
            "1: queries on the same documents are hit and missed together; 0: each for itself",
            fixed(record.intra_cluster_correlation),
        ),
        (
            "effective sample size",
            "independent queries that these are worth",
            f"{record.effective_sample_size:,.1f}",
        ),
        (
            f"accuracy@{k} by cluster",
            "with an interval that allows for the clusters",
            _estimate(record.accuracy_by_cluster),
        ),
        (
            "cosine distance",
            "mean over pairs of distinct relevant documents; the higher the more diverse",
            fixed(record.cosine_distance),
        ),
        ("topics", "number of clusters of relevant documents that separates them best", count(record.topics)),
        ("silhouette", "how well it does, from −1 to 1", fixed(record.silhouette)),
        ("topic entropy", "1: topics of equal size; 0: one topic holds nearly all", fixed(record.topic_entropy)),
    ]
    return [
        TableLine(name, about, [value if isinstance(value, tuple) else (value, "")]) for name, about, value in lines
    ]
