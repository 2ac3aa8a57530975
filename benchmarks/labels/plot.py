"""Drawings of the page, by the charts of the calibration's report."""

from collections.abc import Mapping, Sequence

from benchmarks.checkout import ROOT
from taugate.calibration.charts.chart import Axis, Chart, Dot, Figure, LegendEntry
from taugate.calibration.charts.standalone import standalone

_FOLDER = ROOT / "docs" / "benchmarks" / "few-labels"
_SERIES = ("s-topk", "s-correct", "s-random", "s-ndcg")

Points = tuple[Sequence[float], Sequence[float]]  # xs and ys


def draw(
    name: str, title: str, axes: tuple[str, str], lines: Mapping[str, Points], dots: Mapping[str, Sequence[Dot]]
) -> str:
    """Write name.svg with lines and dots, each set of them named in the legend; returns the image as Markdown.

    axes: what is along x and y; lines: by what each is, four at most; dots: by what they are.
    """
    xs = [x for points in lines.values() for x in points[0]] + [dot.x for each in dots.values() for dot in each]
    ys = [y for points in lines.values() for y in points[1]] + [dot.y for each in dots.values() for dot in each]
    chart = Chart(name, title, f"{axes[1]} by {axes[0]}", Axis.around(xs, axes[0]), Axis.around([0.0, *ys], axes[1]))
    keys = []
    for series, (what, (x, y)) in zip(_SERIES, lines.items(), strict=False):
        chart.line(x, y, series)
        keys.append(LegendEntry("line", series, what))
    for what, each in dots.items():
        chart.dots(each)
        keys.append(LegendEntry("dot", "", what))
    _FOLDER.mkdir(exist_ok=True)
    (_FOLDER / f"{name}.svg").write_text(standalone(Figure.from_chart(chart, keys), "light"), encoding="utf-8")
    return f"![{title}](few-labels/{name}.svg)"
