"""The dashboard of whoever is about to promote a release: what it would change, before it does."""

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.builders.timeseries import Panel as Lines

from deploy.grafana.panels import JOB, board, lines

_RATE = "[$__rate_interval]"


def shadow() -> Dashboard:
    """Both releases side by side, on the same queries."""
    return (
        board(
            "Taugate: shadow", "taugate-shadow", "A release that is tried beside the one in service, on some queries."
        )
        .with_panel(tried())
        .with_panel(thresholds())
        .with_panel(kept())
        .with_panel(empty())
        .with_panel(changed())
        .with_panel(overlap())
        .with_panel(times())
        .with_panel(compared())
    )


def tried() -> Lines:
    series = f"sum by (release, encoder, policy) (taugate_shadow_release_info{{{JOB}}})"
    return lines("Replicas by shadow", "Which release is tried.", {"{{release}} {{encoder}} {{policy}}": series})


def thresholds() -> Lines:
    return lines(
        "τ",
        "Thresholds of both.",
        {
            "in service": f"max(taugate_release_threshold{{{JOB}}})",
            "shadow": f"max(taugate_shadow_threshold{{{JOB}}})",
        },
    )


def kept() -> Lines:
    results = f'sum by (side) (rate(taugate_shadow_results_total{{{JOB},outcome="kept"}}{_RATE}))'
    return lines(
        "Results kept", "Of a query, by both.", {"{{side}}": f"{results} / ignoring (side) group_left {_all()}"}
    )


def empty() -> Lines:
    empty = f"sum by (side) (rate(taugate_shadow_empty_responses_total{{{JOB}}}{_RATE}))"
    return lines(
        "Queries left with no result",
        "Share of the queries, by both.",
        {"{{side}}": f"{empty} / ignoring (side) group_left {_all()}"},
        "percentunit",
    )


def changed() -> Lines:
    changed = f"sum (rate(taugate_shadow_changed_responses_total{{{JOB}}}{_RATE}))"
    return lines(
        "Replies that a promotion would change",
        "Share of the queries of which both keep other documents, or another order.",
        {"changed": f"{changed} / {_all()}"},
        "percentunit",
    )


def overlap() -> Lines:
    total, count = (f"sum (rate(taugate_shadow_overlap_{name}{{{JOB}}}{_RATE}))" for name in ("sum", "count"))
    return lines(
        "Overlap of the top-K",
        "Share of the documents that both find, before the cut.",
        {"mean": f"{total} / {count}"},
        "percentunit",
    )


def times() -> Lines:
    buckets = f"sum by (le, side) (rate(taugate_shadow_duration_seconds_bucket{{{JOB}}}{_RATE}))"
    return lines(
        "Time to an answer",
        "Of both, one query at a time and behind everything else.",
        {f"p{q * 100:g} {{{{side}}}}": f"histogram_quantile({q}, {buckets})" for q in (0.5, 0.99)},
        "s",
    )


def compared() -> Lines:
    return lines(
        "Queries compared",
        "A second; skipped are those that came while it was behind, failed those that one of them cannot answer.",
        {"{{outcome}}": f"sum by (outcome) (rate(taugate_shadow_queries_total{{{JOB}}}{_RATE}))"},
    )


def _all() -> str:
    return f'sum (rate(taugate_shadow_queries_total{{{JOB},outcome="compared"}}{_RATE}))'
