"""The dashboard of whoever is asked whether the traffic has drifted. One function a panel."""

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.statetimeline import Panel as States
from grafana_foundation_sdk.builders.timeseries import Panel as Lines

from deploy.grafana.panels import JOB, NEUTRAL, board, lines, number, states, words


def drift() -> Dashboard:
    """Alarms first, then what they are made of."""
    return (
        board("Taugate: drift", "taugate-drift", "Live similarities against those that the release was calibrated on.")
        .with_row(Row("Alarms"))
        .with_panel(alarms())
        .with_panel(evidence())
        .with_panel(effects())
        .with_panel(alarmed())
        .with_panel(blocks())
        .with_panel(block_size())
        .with_panel(baseline())
        .with_panel(shared())
        .with_panel(lost())
        .with_panel(canary_age())
        .with_row(Row("COE and ROE"))
        .with_panel(coe())
        .with_panel(expected_coe())
        .with_panel(roe())
        .with_panel(above())
        .with_panel(samples())
        .with_row(Row("Distributions"))
        .with_panel(similarity("topk", "Similarity with the top-K"))
        .with_panel(similarity("random", "Similarity with random documents"))
        .with_panel(similarity("correct", "Similarity with documents judged relevant"))
        .with_panel(distances())
        .with_row(Row("Canaries and feedback"))
        .with_panel(canary_accuracy())
        .with_panel(canary_difference())
        .with_panel(feedback())
    )


def alarms() -> States:
    return states(
        "Alarms",
        "Of all replicas together: evidence that chance seldom gives, and a shift that matters (docs/drift.md).",
        f"job:taugate_drift_alarm:pooled{{{JOB}}}",
        "{{job}} {{signal}}",
    )


def evidence() -> Lines:
    return lines(
        "Evidence",
        "Of a shift, averaged over the replicas: its logarithm over that of what an alarm takes, so 1 is an alarm.",
        {"{{job}} {{signal}}": f"job:taugate_drift_evidence:pooled{{{JOB}}}"},
        "percentunit",
    )


def effects() -> Lines:
    return lines(
        "Effect",
        "Largest shift in the window, in Cohen's h: .1 is what the alarms look for beyond what sampling explains.",
        {"{{job}} {{signal}}": f"max by (job, signal) (taugate_drift_effect{{{JOB}}})"},
    )


def alarmed() -> Lines:
    return lines(
        "Replicas with an alarm",
        "All at once where they share their evidence. Where each has its own, one alone is not yet an alarm of all.",
        {"{{job}} {{signal}}": f"sum by (job, signal) (taugate_drift_alarm{{{JOB}}})"},
    )


def blocks() -> Lines:
    return lines(
        "Blocks weighed",
        "An hour, by replica; evidence moves with each.",
        {"{{instance}}": f"rate(taugate_drift_blocks_total{{{JOB}}}[1h]) * 3600"},
    )


def block_size() -> Stat:
    return number(
        "Queries in a block",
        "Distinct ones; evidence is weighed when there are as many.",
        f"max(taugate_drift_block_queries{{{JOB}}})",
        {None: NEUTRAL},
    )


def baseline() -> Stat:
    # No baseline is no fault: without one, ordinary swings are weighed as everything else is.
    return number(
        "Drift baseline",
        "Of ordinary traffic. In force: in every replica; refused: in one at least (TaugateDriftBaselineRefused).",
        f"min(taugate_drift_baseline{{{JOB}}}) - max(taugate_drift_baseline_refused{{{JOB}}})",
        {None: "red", 0: NEUTRAL, 1: "green"},
    ).mappings(words({-1: "refused", 0: "none", 1: "in force"}))


def shared() -> Stat:
    # Without Redis each replica weighs its own traffic, as it should; whether Redis is down is on the other dashboard.
    return number(
        "Shared evidence",
        "Yes where all replicas weigh their traffic together, through Redis.",
        f"min(taugate_drift_shared{{{JOB}}})",
        {None: NEUTRAL, 1: "green"},
    ).mappings(words({0: "no", 1: "yes"}))


def coe() -> Lines:
    return lines(
        "COE, from feedback",
        "Share of documents judged relevant that score above the low end of the top-K; nothing before 100 judgements.",
        _with_reference("coe", "coe"),
        "percentunit",
    )


def expected_coe() -> Lines:
    return lines(
        "COE expected",
        "The calibration's correct documents against the live top-K: what is known of COE where nobody judges.",
        _with_reference("coe_expected", "coe"),
        "percentunit",
    )


def roe() -> Lines:
    return lines(
        "ROE",
        "Share of random documents that score above the low end of the top-K.",
        _with_reference("roe", "roe"),
        "percentunit",
    )


def above() -> Lines:
    return lines(
        "Above θ of the calibration",
        "Of all replicas together, over an hour: judged documents (COE of those shown) and random ones (ROE).",
        {"{{job}} {{set}}": f"job:taugate_overlap_above:ratio_rate1h{{{JOB}}}"},
        "percentunit",
    )


def samples() -> Lines:
    return lines(
        "Similarities behind COE and ROE",
        "In the windows of all replicas.",
        {"{{job}} {{set}}": f"sum by (job, set) (taugate_overlap_samples{{{JOB}}})"},
    )


def similarity(name: str, title: str) -> Lines:
    buckets = f'sum by (le) (rate(taugate_similarity_bucket{{{JOB},set="{name}"}}[$__rate_interval]))'
    return lines(
        title,
        "Percentiles; the buckets are percentiles of the calibration, between which they are interpolated.",
        {f"{q * 100:g}th percentile": f"histogram_quantile({q}, {buckets})" for q in (0.05, 0.25, 0.5, 0.75, 0.95)},
    )


def distances() -> Lines:
    return lines(
        "Distance of the top-K similarities from the calibration",
        "Kolmogorov-Smirnov, PSI and Wasserstein of the window. Nothing is alarmed by them: see docs/drift.md for why.",
        {"{{job}} {{test}}": f"max by (job, test) (taugate_drift_statistic{{{JOB}}})"},
    )


def canary_accuracy() -> Lines:
    return lines(
        "Accuracy of the golden queries",
        "Asked every few minutes, beside the traffic.",
        {
            "{{instance}}": f"taugate_canary_accuracy{{{JOB}}}",
            "{{instance}} at calibration": f"taugate_canary_accuracy_reference{{{JOB}}}",
        },
        "percentunit",
    )


def canary_difference() -> Lines:
    return lines(
        "Golden queries: distance from the record",
        "Largest difference of a similarity from what it was at calibration; the release has its tolerance.",
        {"{{instance}}": f"taugate_canary_difference{{{JOB}}}"},
    )


def canary_age() -> Stat:
    return number(
        "Golden queries asked",
        "How long ago, of the replica where it is longest.",
        f"time() - min(taugate_canary_timestamp_seconds{{{JOB}}})",
        {None: "green", 900: "red"},  # as TaugateCanaryStale
        "s",
    )


def feedback() -> Lines:
    return lines(
        "Judgements",
        "POST /feedback, a second.",
        {"{{outcome}}": f"sum by (outcome) (rate(taugate_feedback_total{{{JOB}}}[$__rate_interval]))"},
        "ops",
    )


def lost() -> Stat:
    return number(
        "Not looked at",
        "Queries of the last hour that were answered faster than they could be watched.",
        f"sum(increase(taugate_drift_lost_total{{{JOB}}}[1h]))",
        {None: "green", 1: "yellow"},
    )


def _with_reference(live: str, reference: str) -> dict[str, str]:
    at_calibration = f"min by (bound) (taugate_{reference}_reference{{{JOB}}})"
    return {
        "{{job}}": f"avg by (job) (taugate_{live}{{{JOB}}})",
        "{{job}} {{bound}}": f"avg by (job, bound) (taugate_{live}_interval{{{JOB}}})",
        "calibration {{bound}}": at_calibration,
    }
