"""The serving dashboard: how well does the service run?"""

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from deploy.grafana.board import board
from deploy.grafana.panels import NEUTRAL, Content, firing, limited, lines, number
from deploy.grafana.promql import INSTALLATION, aggregated, means, quantiles, rate, rates, selected, series

_EMPTY = selected("job:taugate_drift_share:avg", 'signal="empty_responses"')
_SEARCHES = f'rate(taugate_request_duration_seconds_count{{{INSTALLATION},route=~"/search.*"}}[$__rate_interval])'
_CONTENT: list[Content] = [
    Row("Summary"),
    firing(),
    number(
        "Available",
        "Objective of 28 days: 99.8 % of requests without a 5xx, in the worst of the selected installations.",
        f"min({selected('job:taugate_available:ratio_rate28d')})",
        {None: "red", 0.998: "green"},
        "percentunit",
    ),
    number(
        "Within a second",
        "Objective of 28 days: 99.8 % of searches take at most a second.",
        f"min({selected('job:taugate_fast_searches:ratio_rate28d')})",
        {None: "red", 0.998: "green"},
        "percentunit",
    ),
    number(
        "Calibrated",
        "Objective: at most 35 days since the release was made, or since the chart's CronJob found nothing to do.",
        f"max({selected('job:taugate_calibration_age_seconds:max')})",
        {None: "green", 35 * 86400: "red"},
        "s",
    ),
    number(
        "Judged",
        "Objective: one query in a hundred of the last seven days has judgements.",
        f"min({selected('job:taugate_judged:ratio_rate7d')})",
        {None: "yellow", 0.01: "green"},
        "percentunit",
    ),
    number("Replicas up", "Instances that Prometheus reaches.", f"sum({selected('up')})", {None: "red", 1: NEUTRAL}),
    Row("What users see"),
    number("Searches", "Per second.", f"sum({_SEARCHES})", {None: NEUTRAL}, "reqps").span(6),
    number(
        "Slowest of 100",
        "99th percentile of the time to the reply of a search.",
        f"max({selected('job:taugate_request_duration_seconds:p99_5m')})",
        {None: "green", 1: "yellow"},
        "s",
    ).span(6),
    number(
        "Errors",
        "Share of requests that end with a 5xx.",
        f"max({selected('job:taugate_errors:ratio_rate5m')})",
        {None: "green", 0.012: "red"},  # as TaugateErrors
        "percentunit",
    ).span(6),
    number(
        "No result",
        "Share of searches in the live windows; the dashboard on drift compares it with the calibration.",
        f"max({_EMPTY})",
        {None: NEUTRAL},
        "percentunit",
    ).span(6),
    lines("Requests", "Per second, by route and status.", rates("taugate_requests_total", "route", "code"), "reqps"),
    limited(
        lines(
            "Time to the reply of a search",
            "Percentiles over all replicas.",
            quantiles(
                "taugate_request_duration_seconds",
                {0.5: "p50", 0.95: "p95", 0.99: "p99"},
                selector=f'{INSTALLATION},route=~"/search.*"',
            ),
            "s",
        ),
        {1: "orange"},  # what TaugateLatency counts as slow
    ),
    limited(
        lines(
            "Budget burnt",
            "Errors, slow searches and refusals of an hour, divided by what their objectives allow in the long run.",
            {
                f"{{{{namespace}}}} {{{{job}}}} {what}": f"{selected(f'job:{record}:ratio_rate1h')} / {allowed}"
                for what, record, allowed in (
                    ("5xx", "taugate_errors", 0.002),
                    ("slow", "taugate_slow_searches", 0.002),
                    ("429", "taugate_refused", 0.01),
                )
            },
        ),
        {6: "orange", 14.4: "red"},  # as TaugateErrors, TaugateLatency and TaugateOverloaded
    ),
    limited(
        lines(
            "Errors and refusals",
            "Share of requests that end with a 5xx, or with 429 because too many are waiting.",
            {
                "{{namespace}} {{job}} 5xx": selected("job:taugate_errors:ratio_rate5m"),
                "{{namespace}} {{job}} 429": selected("job:taugate_refused:ratio_rate5m"),
            },
            "percentunit",
        ),
        {0.012: "red", 0.06: "orange"},  # as TaugateErrors and TaugateOverloaded, over six hours
    ),
    lines(
        "Results kept and dropped",
        "Retrieved documents per second, by outcome (kept or dropped).",
        rates("taugate_results_total", "outcome"),
        "ops",
    ),
    lines(
        "Searches with no result",
        "Share of queries, over five minutes.",
        {
            "{{namespace}} {{job}}": selected("job:taugate_empty:ratio_rate5m"),
            "calibration {{namespace}} {{job}}": selected(
                "job:taugate_drift_share_reference:avg", 'signal="empty_responses"'
            ),
        },
        "percentunit",
    ),
    Row("Why"),
    lines(
        "Time in each stage",
        "Mean per batch of one or more queries.",
        means("taugate_stage_duration_seconds", "stage"),
        "s",
    ),
    lines(
        "Queries encoded together",
        "Mean batch size of the encoder; 1 at low load.",
        means("taugate_encode_batch_size", "namespace", "job"),
    ),
    lines(
        "Queries waiting or running",
        "By replica. At TAUGATE_QUEUE_LIMIT, further queries are refused with 429.",
        series("taugate_queue_depth", "instance"),
    ),
    lines("Cache", "Cache lookups per second, by outcome.", rates("taugate_cache_requests_total", "outcome"), "ops"),
    lines(
        "Truncated queries",
        "Queries per second that are longer than the encoder reads; their replies are not calibrated.",
        {"truncated": rate("taugate_queries_truncated_total")},
        "ops",
    ),
    Row("Release"),
    number(
        "τ in force", "Threshold of the policy.", f"max({selected('taugate_release_threshold')})", {None: NEUTRAL}
    ).span(2),
    number(
        "ρ in force",
        "Threshold for whole queries; no data if the release refuses none.",
        f"max({selected('taugate_release_rho')})",
        {None: NEUTRAL},
    ).span(2),
    number(
        "ψ of τ",
        "Percentile of Γ that is τ; no data if the rule has none.",
        f"max({selected('taugate_release_psi')})",
        {None: NEUTRAL},
    ).span(2),
    number(
        "Evidence",
        "Provisional if a replica's release rests on generated queries, on too few queries of people, or on a corpus "
        "of at most K documents.",
        f"max({selected('taugate_release_provisional')})",
        {None: "green", 1: "yellow"},
        texts={0: "calibrated", 1: "provisional"},
    ),
    number(
        "Corpus growth",
        "Documents, divided by those at the time when τ was chosen; no data for a run.",
        f"max({selected('taugate_release_documents_over_certified')})",
        {None: NEUTRAL},
    ).span(2),
    number(
        "Loaded",
        "Time since the oldest replica loaded its release.",
        f"min({selected('taugate_release_loaded_timestamp_seconds')}) * 1000",
        {None: NEUTRAL},
        "dateTimeFromNow",
    ),
    number(
        "Redis",
        "Up if every replica reaches Redis; no data if none is configured.",
        f"min({selected('taugate_redis_up')} >= 0)",
        {None: "red", 1: "green"},
        texts={0: "down", 1: "up"},
    ).span(2),
    number(
        "Engine",
        "Up if the engine responds to every replica; no data if no release needs one.",
        f"min({selected('taugate_engine_up')} >= 0)",
        {None: "red", 1: "green"},
        texts={0: "down", 1: "up"},
    ).span(2),
    number(
        "Next key expiry",
        "Time until an API key expires; no data if none does. TaugateKeyExpiring names it a week before.",
        f"min({selected('taugate_key_expires_timestamp_seconds')}) - time()",
        {None: "red", 7 * 86400: "green"},
        "s",
    ),
    lines(
        "Replicas by release",
        "More than one line for longer than a deployment takes raises an alert.",
        aggregated("sum", "taugate_release_info", "release", "encoder", "policy"),
    ),
    lines(
        "Reloads",
        "Release reload checks per hour, by outcome. If one fails, the previous release keeps serving.",
        {"{{outcome}}": f"sum by (outcome) (increase({selected('taugate_reloads_total')}[1h]))"},
    ),
    lines(
        "Open connections",
        "By replica. Connections beyond TAUGATE_MAX_CONNECTIONS are refused.",
        series("taugate_connections", "instance"),
    ),
    lines(
        "Refused",
        "Requests per second refused before a search: keys, scopes, rates, connections, incomplete requests; no "
        "queries that the release refuses.",
        rates("taugate_refused_total", "reason", selector=f'{INSTALLATION},reason!="unanswerable"'),
        "reqps",
    ),
    lines(
        "Requests by key",
        "Per second. An unused key can be revoked.",
        rates("taugate_key_requests_total", "key"),
        "reqps",
    ),
    lines(
        "Log lines dropped",
        "Per second. The reader of stderr is too slow; requests do not wait for it.",
        {"{{instance}}": f"rate({selected('taugate_log_dropped_total')}[$__rate_interval])"},
        "ops",
    ),
    lines("Resident memory", "By replica.", series("process_resident_memory_bytes", "instance"), "bytes"),
    lines(
        "Processors in use",
        "By replica.",
        {"{{instance}}": f"rate({selected('process_cpu_seconds_total')}[$__rate_interval])"},
    ),
]


def serving() -> Dashboard:
    """Build the dashboard: a summary, what users see, then the causes."""
    return board("Taugate: serving", "taugate-serving", "Requests, latencies and outcomes.", _CONTENT)
