"""The shadow dashboard: what would change if the shadow release were promoted?"""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.grafana.panels import Content, board, lines
from deploy.grafana.promql import JOB, aggregated, quantiles, rate, rates, selected

_QUERIES = rate("taugate_shadow_queries_total", selector=f'{JOB},outcome="compared"')
_OF_EACH_QUERY = f"/ ignoring (side) group_left {_QUERIES}"
_KEPT = rate("taugate_shadow_results_total", "side", selector=f'{JOB},outcome="kept"')
_OVERLAP = [rate(f"taugate_shadow_overlap_{part}") for part in ("sum", "count")]
_CONTENT: list[Content] = [
    lines(
        "Replicas by shadow",
        "The shadow release of every replica.",
        aggregated("sum", "taugate_shadow_release_info", "release", "encoder", "policy"),
    ),
    lines(
        "τ",
        "Thresholds of both releases.",
        {
            "in service": f"max({selected('taugate_release_threshold')})",
            "shadow": f"max({selected('taugate_shadow_threshold')})",
        },
    ),
    lines("Results kept", "Per query, by release.", {"{{side}}": f"{_KEPT} {_OF_EACH_QUERY}"}),
    lines(
        "Queries left with no result",
        "Share of the queries, by release.",
        {"{{side}}": f"{rate('taugate_shadow_empty_responses_total', 'side')} {_OF_EACH_QUERY}"},
        "percentunit",
    ),
    lines(
        "Replies that a promotion would change",
        "Share of the queries for which the releases keep different documents or another order.",
        {"changed": f"{rate('taugate_shadow_changed_responses_total')} / {_QUERIES}"},
        "percentunit",
    ),
    lines(
        "Overlap of the top-K",
        "Share of the documents that both releases retrieve, before the cut.",
        {"mean": " / ".join(_OVERLAP)},
        "percentunit",
    ),
    lines(
        "Time to an answer",
        "By release. Shadow queries run one at a time, with the lowest priority.",
        quantiles("taugate_shadow_duration_seconds", {0.5: "p50 {{side}}", 0.99: "p99 {{side}}"}, "side"),
        "s",
    ),
    lines(
        "Queries compared",
        "Per second. Skipped: the shadow was behind. Failed: a release could not answer the query.",
        rates("taugate_shadow_queries_total", "outcome"),
    ),
]


def shadow() -> Dashboard:
    """Build the dashboard: both releases side by side on the same queries."""
    return board(
        "Taugate: shadow",
        "taugate-shadow",
        "Compares the shadow release with the one in service on a share of the queries.",
        _CONTENT,
    )
