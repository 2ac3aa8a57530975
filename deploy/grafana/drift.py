"""The drift dashboard: has the traffic drifted?"""

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row
from grafana_foundation_sdk.builders.timeseries import Panel as Lines

from deploy.grafana.board import board
from deploy.grafana.panels import NEUTRAL, Content, banded, firing, limited, lines, number, states
from deploy.grafana.promql import INSTALLATION, aggregated, quantiles, rates, selected, series


def _similarity(name: str, title: str) -> Lines:
    """Draw percentiles of one set of similarities: topk, random or correct."""
    return banded(
        lines(
            title,
            "Percentiles, interpolated between histogram buckets that are percentiles of the calibration.",
            quantiles(
                "taugate_similarity",
                {quantile: f"{100 * quantile:g}th percentile" for quantile in (0.05, 0.25, 0.5, 0.75, 0.95)},
                selector=f'{INSTALLATION},set="{name}"',
            ),
            "none",
            low=None,  # a cosine may be negative
        ),
        {"95th percentile": "5th percentile"},
    )


def _overlap(title: str, meaning: str, live: str, reference: str) -> Lines:
    """Draw an overlap and that of the calibration, with their intervals as bands."""
    return banded(
        lines(
            title,
            meaning,
            {
                "{{namespace}} {{job}}": f"avg by (namespace, job) ({selected(f'taugate_{live}')})",
                "live {{bound}}": f"avg by (bound) ({selected(f'taugate_{live}_interval')})",
                "calibration {{bound}}": f"min by (bound) ({selected(f'taugate_{reference}_reference')})",
            },
            "percentunit",
            high=1,
        ).span(8),
        {"live upper": "live lower", "calibration upper": "calibration lower"},
    )


_CONTENT: list[Content] = [
    Row("Summary"),
    firing(),
    *(
        number(
            f"Answers lost, at {bound}",
            "95 % bound of the answers lost to τ or ρ, by judged queries (docs/drift.md).",
            f"max({selected('taugate_live_loss', selector)})",
            {None: NEUTRAL},
            "percentunit",
        )
        for bound, selector in (("least", 'bound="lower"'), ("most", 'bound="upper"'))
    ),
    number(
        "Judgements to go",
        "Judgements of people until the upper bound of lost answers is below the promise, at the present rate.",
        f"max({selected('taugate_live_judgements_to_go')})",
        {None: "green", 1: NEUTRAL},
    ),
    number(
        "Waiting for a judge",
        "Drawn queries that people have not judged (taugate judge --traffic).",
        f"sum({selected('taugate_live_judgements_waiting')})",
        {None: NEUTRAL},
    ),
    number(
        "Queries in a block",
        "Distinct queries per block. Evidence is updated when a block is full.",
        f"max({selected('taugate_drift_block_queries')})",
        {None: NEUTRAL},
    ),
    # A missing baseline is not a fault: without one, ordinary fluctuations count as shifts.
    number(
        "Drift baseline",
        "Baseline of ordinary traffic. In force: on all replicas. Refused: by any (TaugateDriftBaselineRefused).",
        f"min({selected('taugate_drift_baseline')}) - max({selected('taugate_drift_baseline_refused')})",
        {None: "red", 0: NEUTRAL, 1: "green"},
        texts={-1: "refused", 0: "none", 1: "in force"},
    ),
    # Without Redis every replica tests its own traffic, which is normal; the serving dashboard shows whether Redis is
    # down.
    number(
        "Shared evidence",
        "Yes if all replicas share their evidence through Redis.",
        f"min({selected('taugate_drift_shared')})",
        {None: NEUTRAL, 1: "green"},
        texts={0: "no", 1: "yes"},
    ),
    number(
        "Not analyzed",
        "Queries of the last hour that arrived faster than drift detection could process them.",
        f"sum(increase({selected('taugate_drift_lost_total')}[1h]))",
        {None: "green", 1: "yellow"},
    ),
    number(
        "Golden queries last sent",
        "Time since golden queries were last sent, on the replica with the longest time.",
        f"time() - min({selected('taugate_canary_timestamp_seconds')})",
        {None: "green", 900: "red"},  # as TaugateCanaryStale
        "s",
    ),
    _overlap(
        "COE, from feedback: scores of judged documents, not the quality of answers",
        "Share of the documents judged relevant that score above the low end of the top-K. Needs 100 judgements.",
        "coe",
        "coe",
    ),
    _overlap(
        "COE expected: scores of results, not the quality of answers",
        "COE estimated from the calibration's correct documents and the live top-K; needs no judgements.",
        "coe_expected",
        "coe",
    ),
    _overlap(
        "ROE: scores of queries and random documents, not the quality of answers",
        "Share of random documents that score above the low end of the top-K.",
        "roe",
        "roe",
    ),
    Row("Live loss"),
    *(
        banded(
            lines(
                title,
                meaning,
                {
                    "{{bound}}": f"max by (bound) ({selected(metric)})",
                    **({"promised": f"max({selected('taugate_live_loss_promised')})"} if promised else {}),
                },
                "percentunit",
                high=1,
            ).span(8),
            {"upper": "lower"},
        )
        for title, meaning, metric, promised in (
            (
                "Answers lost to τ or ρ",
                "95 % bounds by judged queries, since the release and recent; they hold at all times.",
                "taugate_live_loss",
                True,
            ),
            (
                "Answered without a relevant result",
                "The same, as a share of all queries.",
                "taugate_live_unanswerable_answered",
                False,
            ),
        )
    ),
    Row("Alarms"),
    states(
        "Alarms",
        "All replicas together: evidence that chance rarely produces, and a shift that matters (docs/drift.md).",
        selected("job:taugate_drift_alarm:pooled"),
        "{{namespace}} {{job}} {{signal}}",
    ),
    limited(
        lines(
            "Evidence",
            "Log evidence of a shift, averaged over replicas, as a share of the evidence that raises an alarm.",
            series("job:taugate_drift_evidence:pooled", "namespace", "job", "signal"),
            "percentunit",
        ),
        {1: "red"},
    ),
    limited(
        lines(
            "Effect",
            "Largest shift in the window, as Cohen's h. Alarms look for 0.1 beyond sampling error.",
            aggregated("max", "taugate_drift_effect", "namespace", "job", "signal"),
            "none",
        ),
        {0.1: "orange"},  # the default smallest_effect
    ),
    *(
        lines(
            title,
            "In the live windows of all replicas, beside the calibration. Alerts name both.",
            {
                "{{namespace}} {{job}}": selected("job:taugate_drift_share:avg", f'signal="{signal}"'),
                "calibration {{namespace}} {{job}}": selected(
                    "job:taugate_drift_share_reference:avg", f'signal="{signal}"'
                ),
            },
            "percentunit",
        )
        for title, signal in (
            ("Searches with no result", "empty_responses"),
            ("Results dropped", "dropped_share"),
            ("Judged replies with a relevant result", "quality"),
        )
    ),
    lines(
        "Judged replies",
        "Per hour, on all replicas. Without any that hold no relevant result, the alarm quality has no evidence.",
        {
            "{{namespace}} {{job}} {{outcome}}": "sum by (namespace, job, outcome) "
            f"(rate({selected('taugate_judged_replies_total')}[1h])) * 3600"
        },
    ),
    lines(
        "Replicas with an alarm",
        "With shared evidence, all replicas alarm at once. Without it, one replica alone is not yet a common alarm.",
        aggregated("sum", "taugate_drift_alarm", "namespace", "job", "signal"),
    ),
    limited(
        lines(
            "Queries not analyzed",
            "Share of the queries of an hour that arrived faster than drift detection could process them.",
            series("job:taugate_drift_lost:ratio_rate1h", "namespace", "job"),
            "percentunit",
        ),
        {0.01: "orange"},  # as TaugateDriftObservationsLost
    ),
    lines(
        "Blocks completed",
        "Per hour, by replica. Evidence is updated after every block.",
        {"{{instance}}": f"rate({selected('taugate_drift_blocks_total')}[1h]) * 3600"},
    ),
    Row("Behind COE and ROE"),
    lines(
        "Above θ of the calibration",
        "All replicas, over an hour: judged documents (COE of the shown ones) and random documents (ROE).",
        series("job:taugate_overlap_above:ratio_rate1h", "namespace", "job", "set"),
        "percentunit",
        high=1,
    ),
    lines(
        "Similarities behind COE and ROE",
        "Number of similarities in the windows of all replicas.",
        aggregated("sum", "taugate_overlap_samples", "namespace", "job", "set"),
    ),
    Row("Distributions"),
    _similarity("topk", "Similarity with the top-K"),
    _similarity("random", "Similarity with random documents"),
    _similarity("correct", "Similarity with documents judged relevant"),
    lines(
        "Distance of the top-K similarities from the calibration",
        "Kolmogorov-Smirnov, PSI and Wasserstein of the window. They raise no alarms; docs/drift.md says why.",
        aggregated("max", "taugate_drift_statistic", "namespace", "job", "test"),
        "none",
    ),
    Row("Canaries and feedback"),
    lines(
        "Accuracy of the golden queries",
        "Golden queries are sent every few minutes, separate from user traffic.",
        {
            "{{instance}}": selected("taugate_canary_accuracy"),
            "{{instance}} at calibration": selected("taugate_canary_accuracy_reference"),
        },
        "percentunit",
        high=1,
    ),
    lines(
        "Golden queries: distance from the record",
        "Largest difference of a similarity from the calibration; the release defines the tolerance.",
        series("taugate_canary_difference", "instance"),
        "none",
    ),
    lines("Judgements", "POST /feedback, per second, by outcome.", rates("taugate_feedback_total", "outcome"), "ops"),
    lines(
        "Explored results",
        "Results below the threshold that were shown for exploration (TAUGATE_EXPLORE_SHARE), per second.",
        rates("taugate_explored_total", "namespace", "job"),
        "ops",
    ),
]


def drift() -> Dashboard:
    """Build the dashboard: a summary, alarms, then the signals behind them."""
    return board(
        "Taugate: drift",
        "taugate-drift",
        "Compares live similarities with those of the release's calibration.",
        _CONTENT,
    )
