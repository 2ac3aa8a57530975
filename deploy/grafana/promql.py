"""Expressions that several panels ask Prometheus for, each with the legend of its series."""

from collections.abc import Mapping, Sequence

JOB = 'job=~"$job"'
Queries = Mapping[str, str]  # legend: expression


def rate(metric: str, *labels: str, where: str = JOB) -> str:
    """Return the sum of a counter's rates, a second.

    Args:
        metric: The counter.
        where: Selects the series.
        labels: That the sum keeps apart; one sum of all without any.
    """
    kept = f" by ({', '.join(labels)})" if labels else ""
    return f"sum{kept} (rate({metric}{{{where}}}[$__rate_interval]))"


def rates(metric: str, *labels: str) -> Queries:
    """Ask for a counter's rate, a second, for each value of the labels."""
    return {_legend(labels): rate(metric, *labels)}


def aggregated(function: str, metric: str, *labels: str) -> Queries:
    """Ask for an aggregate of a gauge, such as its max, for each value of the labels."""
    return {_legend(labels): f"{function} by ({', '.join(labels)}) ({selected(metric)})"}


def means(histogram: str, label: str) -> Queries:
    """Ask for the mean of a histogram's values, for each value of the label."""
    return {_legend([label]): f"{rate(f'{histogram}_sum', label)} / {rate(f'{histogram}_count', label)}"}


def quantiles(histogram: str, legends: Mapping[float, str], *labels: str, where: str = JOB) -> Queries:
    """Ask for quantiles of a histogram's values.

    Args:
        histogram: Its name.
        legends: By quantile, 0…1.
        where: Selects the series.
        labels: That the quantiles keep apart.
    """
    buckets = rate(f"{histogram}_bucket", "le", *labels, where=where)
    return {legend: f"histogram_quantile({quantile}, {buckets})" for quantile, legend in legends.items()}


def each(metric: str, *labels: str) -> Queries:
    """Ask for a gauge as it is, with the labels that tell its series apart as their legend."""
    return {_legend(labels): selected(metric)}


def selected(metric: str) -> str:
    """Return a metric of the jobs that the dashboard shows."""
    return f"{metric}{{{JOB}}}"


def _legend(labels: Sequence[str]) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in labels)
