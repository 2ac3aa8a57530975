"""Lines of the report's tables: metrics, drift, the query set, and the figures of the papers."""

from collections.abc import Sequence
from dataclasses import dataclass

from taugate.calibration.charts.numbers import METRICS, count, fixed, limits, percent
from taugate.calibration.metrics.recall import DeepFigures
from taugate.calibration.query_set.wording import COPIED, Wording
from taugate.retrieval.release.evidence import DriftRecord, Estimate, Interval, IsotropyRecord, Shift
from taugate.retrieval.release.outcome_records import MetricsRecord
from taugate.retrieval.release.records import QuerySetRecord

_ABOUT = {
    "accuracy": "queries with a relevant document among the top {k}, without a threshold",
    "accuracy_at_tau": "queries with a relevant document among the results kept",
    "ndcg": "how high the relevant documents rank, without a threshold",
    "ndcg_at_tau": "how high the relevant documents rank among the results kept",
    "coe": "correct documents more similar than θ; higher is better",
    "roe": "random documents more similar than θ; lower is better",
}
_DRIFT = {
    "topk_similarity": ("similarity", "similarities of all results"),
    "quality": ("relevant replies", "replies that hold a relevant result, within as many judged replies"),
    "roe": ("ROE", "random documents above θ"),
    "empty_responses": ("empty replies", "searches without a result"),
    "dropped_share": ("dropped results", "results below the threshold"),
}


@dataclass(frozen=True)
class TableLine:
    """One line of a table.

    Attributes:
        name: Name of the figure.
        about: Its explanation.
        values: Formatted values, each with its interval or an empty text.
    """

    name: str
    about: str
    values: list[tuple[str, str]]


def metric_lines(parts: list[MetricsRecord], k: int, plain: Sequence[tuple[float, float]]) -> list[TableLine]:
    """Return a line for each metric that any part of the queries has, with its value in each part.

    Args:
        parts: Records of the parts.
        k: K.
        plain: Accuracy and NDCG of each part's queries, without a bootstrap.
    """
    lines = [
        TableLine(name.format(k=k), _ABOUT[key].format(k=k), [_estimate(getattr(part, key)) for part in parts])
        for key, name in METRICS.items()
        if all(getattr(part, key) is not None for part in parts)
    ]
    other_metrics: list[tuple[str, str, Sequence[float | None]]] = [
        (f"accuracy@{k}, not bootstrapped", "of all queries of the part, each once", [value for value, _ in plain]),
        (f"NDCG@{k}, not bootstrapped", "of all queries of the part, each once", [value for _, value in plain]),
        ("results kept", "share of all results", [part.kept_fraction for part in parts]),
        ("answerable empty", "answerable queries that get no result", _abstention(parts, "answerable_empty")),
        (
            "unanswerable empty",
            "unanswerable queries that get no result, as they should",
            _abstention(parts, "unanswerable_empty"),
        ),
        (
            "AUROC",
            "how well the best score separates answerable from unanswerable queries; 1 is perfect, 0.5 is guessing",
            _abstention(parts, "auroc"),
        ),
        (
            "AURC",
            "mean share of wrong answers over all shares of queries answered; lower is better",
            _abstention(parts, "aurc"),
        ),
    ]
    return lines + [
        TableLine(name, about, [(fixed(value), "") for value in values])
        for name, about, values in other_metrics
        if any(value is not None for value in values)
    ]


def _estimate(value: Interval) -> tuple[str, str]:
    by_document = value.by_document if isinstance(value, Estimate) else None
    by_document_text = "" if by_document is None else f" by document {limits(by_document)}"
    return fixed(value.mean), f"{limits(value)}{by_document_text}"


def _abstention(parts: list[MetricsRecord], key: str) -> list[float | None]:
    return [getattr(part.abstention, key) for part in parts]


def drift_lines(record: DriftRecord) -> list[TableLine]:
    """Return the smallest downward and upward shift that each alarm detects."""
    return [
        TableLine(name, about, [_shift(record.signals[key].lower), _shift(record.signals[key].higher)])
        for key, (name, about) in _DRIFT.items()
        if key in record.signals
    ]


def _shift(shift: Shift | None) -> tuple[str, str]:
    return (fixed(None), "") if shift is None else (fixed(abs(shift.points)), f"({fixed(abs(shift.effect), 2)})")


def query_set_lines(record: QuerySetRecord, wording: Wording, queries: int, k: int) -> list[TableLine]:
    """Return a line for each figure of the query set that shows how much its queries can show.

    Args:
        record: Record of the query set.
        wording: Analysis of its texts.
        queries: Number of calibration queries.
        k: K.
    """
    lines = [
        ("calibration queries", "answerable queries that the threshold was chosen on", count(queries)),
        ("repeated queries", "queries with the text of an earlier one", count(record.duplicate_queries)),
        (
            "copying queries",
            f"at least {percent(COPIED, 0)} of their three-word sequences occur in a relevant document",
            count(len(wording.copies)),
        ),
        (
            "repeated answers",
            "queries with a relevant document that another document repeats almost word for word",
            count(len(wording.repeated)),
        ),
        (
            "repeated answers without a label",
            "of these, queries for which the other document counts as wrong",
            count(len(wording.unlabelled)),
        ),
        ("clusters", "groups of queries that share relevant documents", count(record.clusters)),
        (
            "correlation within a cluster",
            "1: queries about the same documents succeed or fail together; 0: they are independent",
            fixed(record.intra_cluster_correlation),
        ),
        (
            "effective sample size",
            "the number of independent queries with the same information",
            f"{record.effective_sample_size:,.1f}",
        ),
        (
            f"accuracy@{k} by cluster",
            "with an interval that allows for the clusters",
            _estimate(record.accuracy_by_cluster),
        ),
    ]
    return [
        TableLine(name, about, [value if isinstance(value, tuple) else (value, "")]) for name, about, value in lines
    ]


def paper_lines(record: QuerySetRecord, isotropy: IsotropyRecord, deep: DeepFigures | None) -> list[TableLine]:
    """Return a line for each measure of the papers that describes ranking, embeddings or the query set.

    Args:
        record: Record of the query set.
        isotropy: I_A and I_B of the documents, as in the manifest.
        deep: Recall@100 and Precision@10 of the measured queries, None if they are not known.
    """
    ranking = (
        []
        if deep is None
        else [
            ("Recall@100", "share of a query's relevant documents among the first 100 results", fixed(deep.recall)),
            ("Precision@10", "share of the first 10 results that are relevant documents", fixed(deep.precision)),
        ]
    )
    lines = [
        *ranking,
        ("isotropy I_A", "Mu et al.; 1: the vectors use all directions equally", fixed(isotropy.i_a)),
        ("isotropy I_B", "IsoScore, with the same meaning", fixed(isotropy.i_b)),
        (
            "cosine distance",
            "mean over all pairs of relevant documents; higher is more diverse",
            fixed(record.cosine_distance),
        ),
        ("topics", "number of groups that divides the relevant documents best", count(record.topics)),
        ("silhouette", "how clearly these groups are separated, from −1 to 1", fixed(record.silhouette)),
        (
            "topic entropy",
            "1: topics of equal size; 0: one topic has almost all documents",
            fixed(record.topic_entropy),
        ),
    ]
    return [TableLine(name, about, [(value, "")]) for name, about, value in lines]
