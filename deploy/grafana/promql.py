"""Prometheus expressions of several panels, with the legends of their series."""

from collections.abc import Mapping, Sequence

INSTALLATION = 'namespace=~"$namespace",job=~"$job"'
Queries = Mapping[str, str]  # legend: expression


def rate(metric: str, *labels: str, selector: str = INSTALLATION) -> str:
    """Return the sum of a counter's rates per second, by labels.

    Args:
        metric: Name of the counter.
        selector: Label selector of the series.
        labels: Labels to group by; without any, the sum is over all series.
    """
    kept = f" by ({', '.join(labels)})" if labels else ""
    return f"sum{kept} (rate({metric}{{{selector}}}[$__rate_interval]))"


def rates(metric: str, *labels: str, selector: str = INSTALLATION) -> Queries:
    """Return a query for a counter's rate per second, by labels."""
    return {_legend(labels): rate(metric, *labels, selector=selector)}


def aggregated(function: str, metric: str, *labels: str) -> Queries:
    """Return a query for an aggregate of a gauge, such as its max, by labels."""
    return {_legend(labels): f"{function} by ({', '.join(labels)}) ({selected(metric)})"}


def means(histogram: str, *labels: str) -> Queries:
    """Return a query for the mean of a histogram's values, by labels."""
    return {_legend(labels): f"{rate(f'{histogram}_sum', *labels)} / {rate(f'{histogram}_count', *labels)}"}


def quantiles(histogram: str, legends: Mapping[float, str], *labels: str, selector: str = INSTALLATION) -> Queries:
    """Return queries for quantiles of a histogram's values.

    Args:
        histogram: Name of the histogram.
        legends: Legends by quantile, 0…1.
        selector: Label selector of the series.
        labels: Labels to group by.
    """
    buckets = rate(f"{histogram}_bucket", "le", *labels, selector=selector)
    return {legend: f"histogram_quantile({quantile}, {buckets})" for quantile, legend in legends.items()}


def series(metric: str, *labels: str) -> Queries:
    """Return a query for a gauge, with labels as the legend of its series."""
    return {_legend(labels): selected(metric)}


def selected(metric: str, *more: str) -> str:
    """Return a metric limited to the namespaces and jobs selected in the dashboard, and to more selectors."""
    return f"{metric}{{{','.join([INSTALLATION, *more])}}}"


def _legend(labels: Sequence[str]) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in labels)
