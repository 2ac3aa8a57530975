"""Render report.html: everything on one page that opens from a disk, in a mail or behind a firewall."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from taugate.calibration.abstention.words import SCORES, evidence, headline, most_percent
from taugate.calibration.charts.numbers import KEEPS, METRICS, PARTS, count, fixed, percent, spread
from taugate.calibration.charts.template import template
from taugate.calibration.encoding.encoder_fit import encoder_fit_warnings
from taugate.calibration.provisional.words import outlook
from taugate.calibration.query_set.warnings import truncation_warning
from taugate.calibration.query_set.wording import COPIED, Wording
from taugate.calibration.report import few_labels
from taugate.calibration.report.abstaining import abstention_figures, shown_queries
from taugate.calibration.report.adapted import AdaptedSection
from taugate.calibration.report.compare import compare_releases, same_queries
from taugate.calibration.report.figures import drawn, metric_curves, reliability_figures, similarity_densities
from taugate.calibration.report.gate import gate_rows, retentions
from taugate.calibration.report.label_errors import label_errors
from taugate.calibration.report.terminal import cost, promise, refusal_warning, statement
from taugate.calibration.report.tradeoff import MAX_LOST, lost_queries, rule_standings, tradeoff_figures
from taugate.calibration.settings.rules import MAX_EMPTY
from taugate.calibration.study.study import Findings
from taugate.ingestion.dataset.beir import Dataset
from taugate.ingestion.dataset.own_documents import left_out_notes
from taugate.retrieval.release.evidence import DriftRecord, Estimate, Interval, Shift
from taugate.retrieval.release.manifest import Manifest, MetricsRecord, UpdateRecord
from taugate.retrieval.release.records import QuerySetRecord

_TEMPLATE = "page.html.j2"
_ABOUT = {
    "accuracy": "queries with a relevant document among the top {k}, without a threshold",
    "accuracy_at_tau": "the same, among the results that are kept",
    "ndcg": "how high the relevant documents rank, without a threshold",
    "ndcg_at_tau": "the same, among the results that are kept",
    "coe": "correct documents more similar than θ; higher is better",
    "roe": "random documents more similar than θ; lower is better",
}
_DRIFT = {
    "topk_similarity": ("similarity", "of all results of all queries"),
    "coe": ("COE", "correct documents above θ, within as many judgements"),
    "roe": ("ROE", "random documents above θ"),
    "empty_responses": ("empty replies", "searches that get no result"),
    "dropped_share": ("dropped results", "results below the threshold"),
}


def render(dataset: Dataset, facts: Mapping[str, Any], found: Findings, parent: Manifest | None) -> str:
    """Render the page; it holds no date, no id of its own and no path: same findings, same characters.

    Args:
        dataset: Texts of queries and documents.
        facts: The manifest less ids, times and files.
        found: Findings of the study.
        parent: Manifest of the release that was current, None without one.
    """
    queries = shown_queries(found)
    rules = rule_standings(found, queries)
    rows = found.parts["calibration"].resamples.rows
    members = {name: len(part.members) for name, part in found.parts.items()}
    last = list(found.metrics)[-1]
    compared = [] if parent is None else compare_releases(parent, facts)
    html: str = template("taugate.calibration.report", _TEMPLATE).render(
        facts=facts,
        policy=found.policy,
        keeps=KEEPS[found.policy.kind],
        parts=PARTS,
        members=members,
        metrics=found.metrics,
        last=last,
        warnings=page_warnings(facts, found),
        cost=cost(found.policy, found.metrics[last], refusing=found.abstention is not None),
        promise=promise(found.policy),
        statement=statement,
        labels=found.labels,
        few_labels=few_labels,
        numbers=metric_lines(found.metrics, found.policy.k),
        densities=similarity_densities(found),
        curves=metric_curves(found),
        bootstraps=(len(rows), len(drawn(rows))),
        shown=queries,
        rules=rules,
        tradeoff=tradeoff_figures(found, queries, rules),
        headline=headline(found.no_answer),
        headline_evidence=evidence(found.no_answer),
        abstaining=abstention_figures(found, queries),
        scores=SCORES,
        most_refused=MAX_EMPTY,
        most_percent=most_percent,
        relevance=found.relevance,
        trust=[] if found.relevance is None else reliability_figures(found.relevance),
        lost=lost_queries(dataset, found),
        most_lost=MAX_LOST,
        doubtful=label_errors(dataset, found),
        drift=drift_lines(facts["drift"]),
        query_set=query_set_lines(found.query_set, found.wording, members["calibration"], found.policy.k),
        adapted=AdaptedSection.of(facts.get("adaptation")),
        gate=gate_rows(facts) if facts["gate"] else [],
        retentions=retentions(facts["gate"]) if facts["gate"] else [],
        parent=parent,
        changed=[row for row in compared if row.changed],
        unchanged=[row for row in compared if not row.changed],
        by_group=lambda rows: [(name, list(each)) for name, each in groupby(rows, key=attrgetter("group"))],
        same_queries=parent is not None and same_queries(parent, facts),
    )
    return html


@dataclass(frozen=True)
class PageWarning:
    """A warning at the top of the page.

    Attributes:
        title: Two or three words.
        text: What is wrong, and what to do about it.
    """

    title: str
    text: str


def page_warnings(facts: Mapping[str, Any], found: Findings) -> list[PageWarning]:
    """Collect what a reader has to know before any number, the gravest first.

    Args:
        facts: The manifest less ids, times and files.
        found: Findings of the study.
    """
    k, record, data = found.policy.k, facts["calibration"], facts["data"]
    warnings = []
    if record.state == "provisional":
        warnings.append(PageWarning("Provisional", _sentence(record.because(k))))
        # An update keeps the record of the queries that chose τ, and may measure others.
        if facts.get("update") is None and (said := outlook(record, found.policy, [*found.metrics.values()][-1])):
            warnings.append(PageWarning("What to expect", said))
    if found.policy.kind == "none":
        more = "Label more queries, or allow a larger loss with --max-loss."
        warnings.append(PageWarning("No threshold", f"The service keeps every result. {found.policy.guarantee} {more}"))
    if (update := facts.get("update")) is not None:
        warnings.append(PageWarning("Updated", update_words(update)))
    if worthless := record.worthless(k):
        warnings.append(PageWarning("No better than chance", _sentence(worthless)))
    if truncated := data["truncated_documents"]:
        encoder = facts["encoder"]
        said = truncation_warning(truncated, data["documents"], encoder["max_length"], encoder["name"])
        warnings.append(PageWarning("Long documents", said))  # ends with a command, which takes no full stop
    notes = left_out_notes(data["empty_documents"] or 0, data["own_documents"] or 0)
    warnings += [PageWarning("Left out", _sentence(note)) for note in notes]
    encoder = facts.get("query_encoder") or facts["encoder"]
    fit = encoder_fit_warnings(facts.get("encoder_fit"), encoder["name"], encoder["max_length"])
    warnings += [PageWarning("Encoder", _sentence(said)) for said in fit]
    if found.abstention is not None:
        if not found.abstention.record.certified:
            said = "The limits asked for could not be certified, so the release was not promoted."
            warnings.append(PageWarning("Limits not reached", said))
        if refused := refusal_warning(found.abstention.record):
            warnings.append(PageWarning("Many refusals", _sentence(refused)))
    return warnings + [PageWarning("Query set", _sentence(each)) for each in found.query_set.warnings]


def update_words(record: UpdateRecord) -> str:
    """Say whose threshold an updated release has, and whether it still holds.

    Args:
        record: Of the update.
    """
    held = "still holds" if record.holds else "is not shown to hold"
    return (
        f"The threshold was chosen on the documents of {record.calibrated}; any guarantee is about those. Documents "
        f"since the parent release: {record.added:,} added, {record.changed:,} changed, {record.removed:,} removed. "
        f"The threshold {held}: accuracy at τ changed by {-100 * record.loss.mean:+.2f} points. The loss is at most "
        f"{100 * record.loss.upper:.2f} points ({100 * record.confidence:g} % confidence), and "
        f"{100 * record.margin:.3g} are allowed."
    )


def _sentence(text: str) -> str:
    """Begin a message with a capital and end it with a full stop."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


@dataclass(frozen=True)
class TableLine:
    """One line of a table.

    Attributes:
        name: What it is.
        about: What that means.
        values: As they are written, each with its interval.
    """

    name: str
    about: str
    values: list[tuple[str, str]]


def metric_lines(metrics: Mapping[str, MetricsRecord], k: int) -> list[TableLine]:
    """Return a line for each metric that any part has, with its value in each part.

    Args:
        metrics: Of the parts.
        k: K.
    """
    parts = list(metrics.values())
    lines = [
        TableLine(name.format(k=k), _ABOUT[key].format(k=k), [_estimate(getattr(part, key)) for part in parts])
        for key, name in METRICS.items()
    ]
    rest: list[tuple[str, str, Sequence[float | None]]] = [
        ("results kept", "share of all results", [part.kept_fraction for part in parts]),
        ("answerable empty", "answerable queries that get no result", _abstention(parts, "answerable_empty")),
        (
            "unanswerable empty",
            "unanswerable queries that get no result, as they should",
            _abstention(parts, "unanswerable_empty"),
        ),
        (
            "AUROC",
            "how well the best score separates the two kinds of query; 1 is perfect, 0.5 is guessing",
            _abstention(parts, "auroc"),
        ),
        (
            "AURC",
            "mean share of wrong answers, over every share of queries answered; lower is better",
            _abstention(parts, "aurc"),
        ),
    ]
    return lines + [
        TableLine(name, about, [(fixed(value), "") for value in values])
        for name, about, values in rest
        if any(value is not None for value in values)
    ]


def _estimate(value: Interval) -> tuple[str, str]:
    by_document = value.by_document if isinstance(value, Estimate) else None
    more = "" if by_document is None else f" by document {spread(by_document)}"
    return fixed(value.mean), f"{spread(value)}{more}"


def _abstention(parts: list[MetricsRecord], key: str) -> list[float | None]:
    return [getattr(part.abstention, key) for part in parts]


def drift_lines(record: DriftRecord) -> list[TableLine]:
    """Return the smallest shift, down and up, that each alarm finds.

    Args:
        record: Of the alarms.
    """
    return [
        TableLine(name, about, [_shift(record.signals[key].lower), _shift(record.signals[key].higher)])
        for key, (name, about) in _DRIFT.items()
    ]


def _shift(shift: Shift | None) -> tuple[str, str]:
    return (fixed(None), "") if shift is None else (fixed(abs(shift.points)), f"({fixed(abs(shift.effect), 2)})")


def query_set_lines(record: QuerySetRecord, wording: Wording, queries: int, k: int) -> list[TableLine]:
    """Return a line for each figure of the query set.

    Args:
        record: Of the query set.
        wording: What its words say.
        queries: How many calibrate.
        k: K.
    """
    lines = [
        ("calibration queries", "answerable queries that the threshold was chosen on", count(queries)),
        ("repeated queries", "queries with the text of an earlier one", count(record.duplicate_queries)),
        (
            "copying queries",
            f"at least {percent(COPIED, 0)} of their three-word sequences stand in a relevant document",
            count(len(wording.copies)),
        ),
        (
            "repeated answers",
            "queries with a relevant document that another one repeats nearly word for word",
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
            "1: queries about the same documents succeed and fail together; 0: each stands for itself",
            fixed(record.intra_cluster_correlation),
        ),
        (
            "effective sample size",
            "the number of independent queries that would say as much",
            f"{record.effective_sample_size:,.1f}",
        ),
        (
            f"accuracy@{k} by cluster",
            "with an interval that allows for the clusters",
            _estimate(record.accuracy_by_cluster),
        ),
        (
            "cosine distance",
            "mean over all pairs of relevant documents; higher is more diverse",
            fixed(record.cosine_distance),
        ),
        ("topics", "the number of groups that divides the relevant documents best", count(record.topics)),
        ("silhouette", "how clearly these groups are separated, from −1 to 1", fixed(record.silhouette)),
        ("topic entropy", "1: topics of equal size; 0: one topic holds nearly everything", fixed(record.topic_entropy)),
    ]
    return [
        TableLine(name, about, [value if isinstance(value, tuple) else (value, "")]) for name, about, value in lines
    ]
