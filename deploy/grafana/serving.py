"""The dashboard of whoever is asked how the service does."""

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from deploy.grafana.panels import NEUTRAL, Content, board, lines, number
from deploy.grafana.promql import JOB, aggregated, each, means, quantiles, rate, rates, selected

_CONTENT: list[Content] = [
    Row("What users see"),
    lines("Requests", "A second, by route and status.", rates("taugate_requests_total", "route", "code"), "reqps"),
    lines(
        "Time to the reply of a search",
        "Percentiles over all replicas.",
        quantiles(
            "taugate_request_duration_seconds",
            {0.5: "p50", 0.95: "p95", 0.99: "p99"},
            where=f'{JOB},route=~"/search.*"',
        ),
        "s",
    ),
    lines(
        "Results kept and dropped",
        "Documents a second, by what the threshold made of them.",
        rates("taugate_results_total", "outcome"),
    ),
    lines(
        "Searches with no result",
        "Share of queries, over five minutes.",
        each("job:taugate_empty:ratio_rate5m", "job"),
        "percentunit",
    ),
    Row("Why"),
    lines(
        "Time in each stage",
        "Mean of a batch, which is of one or more queries.",
        means("taugate_stage_duration_seconds", "stage"),
        "s",
    ),
    lines(
        "Queries encoded together",
        "Mean; 1 while there is no hurry.",
        means("taugate_encode_batch_size", "job"),
    ),
    lines(
        "Queries waiting or at work",
        "Of each replica; at TAUGATE_QUEUE_LIMIT the next is refused with 429.",
        each("taugate_queue_depth", "instance"),
    ),
    lines(
        "Cache",
        "Queries a second, by what the cache did for them.",
        rates("taugate_cache_requests_total", "outcome"),
    ),
    lines(
        "Truncated queries",
        "Queries a second that are longer than the encoder reads; their replies are not calibrated.",
        {"truncated": rate("taugate_queries_truncated_total")},
        width=24,
    ),
    Row("Release"),
    lines(
        "Replicas by release",
        "More than one line for longer than a deployment takes is an alert.",
        aggregated("sum", "taugate_release_info", "release", "encoder", "policy"),
    ),
    number(
        "τ in force",
        "Threshold of the policy.",
        f"max({selected('taugate_release_threshold')})",
        {None: NEUTRAL},
    ),
    number(
        "Evidence",
        "Provisional where the release of a replica rests on generated queries, on too few that people asked, or on a "
        "corpus of no more than K documents.",
        f"max({selected('taugate_release_provisional')})",
        {None: "green", 1: "yellow"},
        texts={0: "calibrated", 1: "provisional"},
    ),
    number(
        "Loaded",
        "When the oldest replica took its release into service.",
        f"min({selected('taugate_release_loaded_timestamp_seconds')}) * 1000",
        {None: NEUTRAL},
        "dateTimeFromNow",
    ),
    number(
        "Redis",
        "Up where every replica reaches Redis; no data where none is configured.",
        f"min({selected('taugate_redis_up')} >= 0)",
        {None: "red", 1: "green"},
        texts={0: "down", 1: "up"},
    ),
    number(
        "Engine",
        "Up where the engine answers every replica; no data where no release needs one.",
        f"min({selected('taugate_engine_up')} >= 0)",
        {None: "red", 1: "green"},
        texts={0: "down", 1: "up"},
    ),
    lines(
        "Reloads",
        "Looks at which release is current, an hour; a failed one leaves the release before in service.",
        {"{{outcome}}": f"sum by (outcome) (increase({selected('taugate_reloads_total')}[1h]))"},
    ),
    lines(
        "Open connections",
        "Of each replica; beyond TAUGATE_MAX_CONNECTIONS the next is refused.",
        each("taugate_connections", "instance"),
    ),
    lines(
        "Refused",
        "A second, before anything was searched: keys, scopes, rates, connections, requests that never became whole.",
        rates("taugate_refused_total", "reason"),
    ),
    lines(
        "Requests by key",
        "A second; one that stands still can be taken away.",
        rates("taugate_key_requests_total", "key"),
    ),
    lines(
        "Log lines dropped",
        "A second; whoever reads stderr does not keep up, and nobody else waits for that.",
        {"{{instance}}": f"rate({selected('taugate_log_dropped_total')}[$__rate_interval])"},
    ),
    lines("Resident memory", "Of each replica.", each("process_resident_memory_bytes", "instance"), "bytes"),
    lines(
        "Processors in use",
        "Of each replica.",
        {"{{instance}}": f"rate({selected('process_cpu_seconds_total')}[$__rate_interval])"},
    ),
]


def serving() -> Dashboard:
    """Build the dashboard: what users see first, then why."""
    return board(
        "Taugate: serving",
        "taugate-serving",
        "Requests, their times, and what became of their results.",
        _CONTENT,
    )
