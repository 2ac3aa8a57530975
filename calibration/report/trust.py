"""Whether `relevance` comes true: the reliability curve, and how many results stand behind each of its points."""

from taugate.calibration.charts.axis import Axis
from taugate.calibration.charts.chart import Chart, Dot
from taugate.calibration.charts.figure import Figure, Key
from taugate.calibration.charts.numbers import brief, count, percent
from taugate.retrieval.release.evidence import RelevanceRecord, ReliabilityBin


def trust(record: RelevanceRecord) -> list[Figure]:
    """What is said against what is true, with its 95 % interval, and the number of results, by tenth of relevance."""
    curve = Chart(
        "reliability",
        "Relevance said against relevance found",
        "A dot for each tenth of relevance, with its 95 % interval; on the diagonal what is said is true.",
        Axis(0, 1, "relevance, as the service says it", "percent"),
        Axis(0, 1, "relevant by the labels", "percent"),
    )
    said, true = [each.relevance for each in record.bins], [each.relevant for each in record.bins]
    curve.line([0, 1], [0, 1], "guess")
    curve.line(said, true, "s-probability")
    for x, each in zip(said, record.bins, strict=True):
        if each.interval is not None:
            curve.line([x, x], [each.interval.lower, each.interval.upper], "s-probability thin")
    curve.dots(
        [
            Dot(x, y, "", f"said {percent(x)}, found {_found(each)}, {count(each.results)} results")
            for x, y, each in zip(said, true, record.bins, strict=True)
        ]
    )
    most = max(each.results for each in record.bins)
    bars = Chart(
        "reliability-counts",
        "Results in each tenth of relevance",
        "A bar for each tenth of relevance, with its number of results.",
        Axis(0, 1, "relevance, as the service says it", "percent"),
        Axis(0, 1.1 * most, "results", form="none"),
    )
    for each in record.bins:
        bars.bar(each.lower, each.upper, each.results, brief(each.results), "s-probability")
    keys = [Key("line", "s-probability", "found, with its interval"), Key("line", "guess", "what is said is true")]
    return [Figure.of(curve, keys), Figure.of(bars, [])]


def _found(each: ReliabilityBin) -> str:
    interval = each.interval
    return percent(each.relevant) + (f" ({percent(interval.lower)}–{percent(interval.upper)})" if interval else "")
