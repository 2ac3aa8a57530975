"""The dashboard of whoever is asked whether the traffic has drifted."""

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row
from grafana_foundation_sdk.builders.timeseries import Panel as Lines

from deploy.grafana.panels import NEUTRAL, Content, board, lines, number, states
from deploy.grafana.promql import JOB, Queries, aggregated, each, quantiles, rates, selected


def _similarity(name: str, title: str) -> Lines:
    """Draw percentiles of one set of similarities: topk, random or correct."""
    return lines(
        title,
        "Percentiles; the buckets are percentiles of the calibration, between which they are interpolated.",
        quantiles(
            "taugate_similarity",
            {quantile: f"{100 * quantile:g}th percentile" for quantile in (0.05, 0.25, 0.5, 0.75, 0.95)},
            where=f'{JOB},set="{name}"',
        ),
    )


def _with_reference(live: str, reference: str) -> Queries:
    """Ask for an overlap with its interval, beside that of the calibration."""
    return {
        "{{job}}": f"avg by (job) ({selected(f'taugate_{live}')})",
        "{{job}} {{bound}}": f"avg by (job, bound) ({selected(f'taugate_{live}_interval')})",
        "calibration {{bound}}": f"min by (bound) ({selected(f'taugate_{reference}_reference')})",
    }


_CONTENT: list[Content] = [
    Row("Alarms"),
    states(
        "Alarms",
        "Of all replicas together: evidence that chance seldom gives, and a shift that matters (docs/drift.md).",
        selected("job:taugate_drift_alarm:pooled"),
        "{{job}} {{signal}}",
    ),
    lines(
        "Evidence",
        "Of a shift, averaged over the replicas: its logarithm over that of what an alarm takes, so 1 is an alarm.",
        each("job:taugate_drift_evidence:pooled", "job", "signal"),
        "percentunit",
    ),
    lines(
        "Effect",
        "Largest shift in the window, in Cohen's h: .1 is what the alarms look for beyond what sampling explains.",
        aggregated("max", "taugate_drift_effect", "job", "signal"),
    ),
    lines(
        "Replicas with an alarm",
        "All at once where they share their evidence. Where each has its own, one alone is not yet an alarm of all.",
        aggregated("sum", "taugate_drift_alarm", "job", "signal"),
    ),
    lines(
        "Blocks completed",
        "An hour, by replica; evidence moves with each.",
        {"{{instance}}": f"rate({selected('taugate_drift_blocks_total')}[1h]) * 3600"},
    ),
    number(
        "Queries in a block",
        "Distinct queries; the evidence is updated when a block is full.",
        f"max({selected('taugate_drift_block_queries')})",
        {None: NEUTRAL},
    ),
    # A missing baseline is no fault: without one, ordinary swings are tested like everything else.
    number(
        "Drift baseline",
        "Of ordinary traffic. In force: in every replica; refused: in one at least (TaugateDriftBaselineRefused).",
        f"min({selected('taugate_drift_baseline')}) - max({selected('taugate_drift_baseline_refused')})",
        {None: "red", 0: NEUTRAL, 1: "green"},
        texts={-1: "refused", 0: "none", 1: "in force"},
    ),
    # Without Redis each replica tests its own traffic, as it should; whether Redis is down is on the other
    # dashboard.
    number(
        "Shared evidence",
        "Yes where all replicas pool their traffic through Redis.",
        f"min({selected('taugate_drift_shared')})",
        {None: NEUTRAL, 1: "green"},
        texts={0: "no", 1: "yes"},
    ),
    number(
        "Not looked at",
        "Queries of the last hour that were answered faster than they could be watched.",
        f"sum(increase({selected('taugate_drift_lost_total')}[1h]))",
        {None: "green", 1: "yellow"},
    ),
    number(
        "Golden queries asked",
        "How long ago, of the replica where it is longest.",
        f"time() - min({selected('taugate_canary_timestamp_seconds')})",
        {None: "green", 900: "red"},  # as TaugateCanaryStale
        "s",
    ),
    Row("COE and ROE"),
    lines(
        "COE, from feedback",
        "Share of documents judged relevant that score above the low end of the top-K; nothing before 100 judgements.",
        _with_reference("coe", "coe"),
        "percentunit",
    ),
    lines(
        "COE expected",
        "The calibration's correct documents against the live top-K: what is known of COE where nobody judges.",
        _with_reference("coe_expected", "coe"),
        "percentunit",
    ),
    lines(
        "ROE",
        "Share of random documents that score above the low end of the top-K.",
        _with_reference("roe", "roe"),
        "percentunit",
    ),
    lines(
        "Above θ of the calibration",
        "Of all replicas together, over an hour: judged documents (COE of those shown) and random ones (ROE).",
        each("job:taugate_overlap_above:ratio_rate1h", "job", "set"),
        "percentunit",
    ),
    lines(
        "Similarities behind COE and ROE",
        "In the windows of all replicas.",
        aggregated("sum", "taugate_overlap_samples", "job", "set"),
    ),
    Row("Distributions"),
    _similarity("topk", "Similarity with the top-K"),
    _similarity("random", "Similarity with random documents"),
    _similarity("correct", "Similarity with documents judged relevant"),
    lines(
        "Distance of the top-K similarities from the calibration",
        "Kolmogorov-Smirnov, PSI and Wasserstein of the window. Nothing is alarmed by them: see docs/drift.md for why.",
        aggregated("max", "taugate_drift_statistic", "job", "test"),
    ),
    Row("Canaries and feedback"),
    lines(
        "Accuracy of the golden queries",
        "Asked every few minutes, beside the traffic.",
        {
            "{{instance}}": selected("taugate_canary_accuracy"),
            "{{instance}} at calibration": selected("taugate_canary_accuracy_reference"),
        },
        "percentunit",
    ),
    lines(
        "Golden queries: distance from the record",
        "Largest difference of a similarity from what it was at calibration; the release has its tolerance.",
        each("taugate_canary_difference", "instance"),
    ),
    lines("Judgements", "POST /feedback, a second.", rates("taugate_feedback_total", "outcome"), "ops"),
    lines(
        "Explored results",
        "Results below the threshold that were shown to be judged (TAUGATE_EXPLORE_SHARE), a second.",
        rates("taugate_explored_total", "job"),
        "ops",
    ),
]


def drift() -> Dashboard:
    """Build the dashboard: alarms first, then what they are made of."""
    return board(
        "Taugate: drift",
        "taugate-drift",
        "Live similarities against those that the release was calibrated on.",
        _CONTENT,
    )
