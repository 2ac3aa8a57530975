"""The dashboard of whoever is asked how the service does. One function a panel."""

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.timeseries import Panel as Lines

from deploy.grafana.panels import JOB, NEUTRAL, board, lines, number, words

_RATE = "[$__rate_interval]"
_SEARCH = f'{JOB},route=~"/search.*"'


def serving() -> Dashboard:
    """What users see first, then why."""
    return (
        board("Taugate: serving", "taugate-serving", "Requests, their times, and what became of their results.")
        .with_row(Row("What users see"))
        .with_panel(requests())
        .with_panel(times())
        .with_panel(outcomes())
        .with_panel(empty())
        .with_row(Row("Why"))
        .with_panel(stages())
        .with_panel(batches())
        .with_panel(queue())
        .with_panel(cache())
        .with_row(Row("Release"))
        .with_panel(releases())
        .with_panel(threshold())
        .with_panel(evidence())
        .with_panel(loaded())
        .with_panel(redis())
        .with_panel(reloads())
        .with_panel(connections())
        .with_panel(refused())
        .with_panel(keys())
        .with_panel(log_lines())
        .with_panel(memory())
        .with_panel(processor())
    )


def requests() -> Lines:
    return lines(
        "Requests",
        "A second, by route and status.",
        {"{{route}} {{code}}": f"sum by (route, code) (rate(taugate_requests_total{{{JOB}}}{_RATE}))"},
        "reqps",
    )


def times() -> Lines:
    buckets = f"sum by (le) (rate(taugate_request_duration_seconds_bucket{{{_SEARCH}}}{_RATE}))"
    return lines(
        "Time to the reply of a search",
        "Percentiles over all replicas.",
        {f"p{q * 100:g}": f"histogram_quantile({q}, {buckets})" for q in (0.5, 0.95, 0.99)},
        "s",
    )


def outcomes() -> Lines:
    return lines(
        "Results kept and dropped",
        "Documents a second, by what the threshold made of them.",
        {"{{outcome}}": f"sum by (outcome) (rate(taugate_results_total{{{JOB}}}{_RATE}))"},
    )


def empty() -> Lines:
    return lines(
        "Searches with no result",
        "Share of queries, over five minutes.",
        {"{{job}}": f"job:taugate_empty:ratio_rate5m{{{JOB}}}"},
        "percentunit",
    )


def stages() -> Lines:
    return lines(
        "Time in each stage",
        "Mean of a batch, which is of one or more queries.",
        {
            "{{stage}}": f"sum by (stage) (rate(taugate_stage_duration_seconds_sum{{{JOB}}}{_RATE})) / "
            f"sum by (stage) (rate(taugate_stage_duration_seconds_count{{{JOB}}}{_RATE}))"
        },
        "s",
    )


def batches() -> Lines:
    return lines(
        "Queries encoded together",
        "Mean; 1 while there is no hurry.",
        {
            "{{job}}": f"sum by (job) (rate(taugate_encode_batch_size_sum{{{JOB}}}{_RATE})) / "
            f"sum by (job) (rate(taugate_encode_batch_size_count{{{JOB}}}{_RATE}))"
        },
    )


def queue() -> Lines:
    return lines(
        "Queries waiting or at work",
        "Of each replica; at TAUGATE_QUEUE_LIMIT the next is refused with 429.",
        {"{{instance}}": f"taugate_queue_depth{{{JOB}}}"},
    )


def cache() -> Lines:
    return lines(
        "Cache",
        "Queries a second, by what the cache did for them.",
        {"{{outcome}}": f"sum by (outcome) (rate(taugate_cache_requests_total{{{JOB}}}{_RATE}))"},
    )


def releases() -> Lines:
    return lines(
        "Replicas by release",
        "More than one line for longer than a deployment takes is an alert.",
        {"{{release}} {{encoder}} {{policy}}": f"sum by (release, encoder, policy) (taugate_release_info{{{JOB}}})"},
    )


def threshold() -> Stat:
    return number("τ in force", "Threshold of the policy.", f"max(taugate_release_threshold{{{JOB}}})", {None: NEUTRAL})


def evidence() -> Stat:
    return number(
        "Evidence",
        "Provisional where too few judged queries stand behind the release of a replica.",
        f"max(taugate_release_provisional{{{JOB}}})",
        {None: "green", 1: "yellow"},
    ).mappings(words({0: "calibrated", 1: "provisional"}))


def loaded() -> Stat:
    return number(
        "Loaded",
        "When the oldest replica took its release into service.",
        f"min(taugate_release_loaded_timestamp_seconds{{{JOB}}}) * 1000",
        {None: NEUTRAL},
        "dateTimeFromNow",
    )


def redis() -> Stat:
    return number(
        "Redis",
        "Up where every replica has it; nothing where none is wanted.",
        f"min(taugate_redis_up{{{JOB}}})",
        {None: "red", 1: "green"},
    ).mappings(words({0: "down", 1: "up"}))


def reloads() -> Lines:
    return lines(
        "Reloads",
        "Looks at which release is current, an hour; a failed one leaves the release before in service.",
        {"{{outcome}}": f"sum by (outcome) (increase(taugate_reloads_total{{{JOB}}}[1h]))"},
    )


def connections() -> Lines:
    return lines(
        "Open connections",
        "Of each replica; beyond TAUGATE_MAX_CONNECTIONS the next is refused.",
        {"{{instance}}": f"taugate_connections{{{JOB}}}"},
    )


def refused() -> Lines:
    return lines(
        "Refused",
        "A second, before anything was searched: keys, scopes, rates, connections, requests that never became whole.",
        {"{{reason}}": f"sum by (reason) (rate(taugate_refused_total{{{JOB}}}{_RATE}))"},
    )


def keys() -> Lines:
    return lines(
        "Requests by key",
        "A second; one that stands still can be taken away.",
        {"{{key}}": f"sum by (key) (rate(taugate_key_requests_total{{{JOB}}}{_RATE}))"},
    )


def log_lines() -> Lines:
    return lines(
        "Log lines dropped",
        "A second; whoever reads stderr does not keep up, and nobody else waits for that.",
        {"{{instance}}": f"rate(taugate_log_dropped_total{{{JOB}}}{_RATE})"},
    )


def memory() -> Lines:
    return lines(
        "Resident memory",
        "Of each replica.",
        {"{{instance}}": f"process_resident_memory_bytes{{{JOB}}}"},
        "bytes",
    )


def processor() -> Lines:
    return lines(
        "Processors in use",
        "Of each replica.",
        {"{{instance}}": f"rate(process_cpu_seconds_total{{{JOB}}}{_RATE})"},
    )
