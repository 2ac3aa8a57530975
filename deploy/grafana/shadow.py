"""The dashboard of whoever is about to promote a release: what it would change, before it does."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.grafana.panels import Content, board, lines
from deploy.grafana.promql import JOB, aggregated, quantiles, rate, rates, selected

_QUERIES = rate("taugate_shadow_queries_total", where=f'{JOB},outcome="compared"')
_OF_EACH_QUERY = f"/ ignoring (side) group_left {_QUERIES}"
_KEPT = rate("taugate_shadow_results_total", "side", where=f'{JOB},outcome="kept"')
_OVERLAP = [rate(f"taugate_shadow_overlap_{part}") for part in ("sum", "count")]
_CONTENT: list[Content] = [
    lines(
        "Replicas by shadow",
        "Which release is tried.",
        aggregated("sum", "taugate_shadow_release_info", "release", "encoder", "policy"),
    ),
    lines(
        "τ",
        "Thresholds of both.",
        {
            "in service": f"max({selected('taugate_release_threshold')})",
            "shadow": f"max({selected('taugate_shadow_threshold')})",
        },
    ),
    lines("Results kept", "Of a query, by both.", {"{{side}}": f"{_KEPT} {_OF_EACH_QUERY}"}),
    lines(
        "Queries left with no result",
        "Share of the queries, by both.",
        {"{{side}}": f"{rate('taugate_shadow_empty_responses_total', 'side')} {_OF_EACH_QUERY}"},
        "percentunit",
    ),
    lines(
        "Replies that a promotion would change",
        "Share of the queries of which both keep other documents, or another order.",
        {"changed": f"{rate('taugate_shadow_changed_responses_total')} / {_QUERIES}"},
        "percentunit",
    ),
    lines(
        "Overlap of the top-K",
        "Share of the documents that both find, before the cut.",
        {"mean": " / ".join(_OVERLAP)},
        "percentunit",
    ),
    lines(
        "Time to an answer",
        "Of both, one query at a time and behind everything else.",
        quantiles("taugate_shadow_duration_seconds", {0.5: "p50 {{side}}", 0.99: "p99 {{side}}"}, "side"),
        "s",
    ),
    lines(
        "Queries compared",
        "A second; skipped are those that came while it was behind, failed those that one of them cannot answer.",
        rates("taugate_shadow_queries_total", "outcome"),
    ),
]


def shadow() -> Dashboard:
    """Build the dashboard: both releases side by side, on the same queries."""
    return board(
        "Taugate: shadow",
        "taugate-shadow",
        "A release that is tried beside the one in service, on some queries.",
        _CONTENT,
    )
