"""The shadow dashboard: what would change if the shadow release were promoted?"""

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from deploy.grafana.board import board
from deploy.grafana.panels import NEUTRAL, Content, firing, lines, number
from deploy.grafana.promql import INSTALLATION, aggregated, quantiles, rate, rates, selected

_QUERIES = rate("taugate_shadow_queries_total", selector=f'{INSTALLATION},outcome="compared"')
_OF_EACH_QUERY = f"/ ignoring (side) group_left {_QUERIES}"
_KEPT = rate("taugate_shadow_results_total", "side", selector=f'{INSTALLATION},outcome="kept"')
_OVERLAP = [rate(f"taugate_shadow_overlap_{part}") for part in ("sum", "count")]
_EMPTY = f"{rate('taugate_shadow_empty_responses_total', 'side')} {_OF_EACH_QUERY}"
_CHANGED = f"{rate('taugate_shadow_changed_responses_total')} / {_QUERIES}"
_CONTENT: list[Content] = [
    Row("Summary"),
    firing(),
    number(
        "Compared in an hour",
        "Queries that both releases have answered.",
        f'sum(increase(taugate_shadow_queries_total{{{INSTALLATION},outcome="compared"}}[1h]))',
        {None: NEUTRAL},
        "short",
    ),
    number("Changed", "Share of the replies that a promotion would change.", _CHANGED, {None: NEUTRAL}, "percentunit"),
    number(
        "Without a result",
        "Share of the queries, of the release with more of them.",
        f"max({_EMPTY})",
        {None: NEUTRAL},
        "percentunit",
    ),
    Row("Both releases"),
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
        "none",
        low=None,  # a cosine may be negative
    ),
    lines("Results kept", "Per query, by release.", {"{{side}}": f"{_KEPT} {_OF_EACH_QUERY}"}),
    lines("Queries left with no result", "Share of the queries, by release.", {"{{side}}": _EMPTY}, "percentunit"),
    lines(
        "Replies that a promotion would change",
        "Share of the queries for which the releases keep different documents or another order.",
        {"changed": _CHANGED},
        "percentunit",
        high=1,
    ),
    lines(
        "Overlap of the top-K",
        "Share of the documents that both releases retrieve, before the cut.",
        {"mean": " / ".join(_OVERLAP)},
        "percentunit",
        high=1,
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
        "ops",
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
