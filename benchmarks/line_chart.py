"""Drawings for the pages, by the charts of the calibration's report."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.checkout import ROOT
from taugate.calibration.charts.chart import Axis, Chart, Dot, Figure, LegendEntry
from taugate.calibration.charts.standalone import standalone

_PAGES = ROOT / "docs" / "benchmarks"
_SERIES = ("s-topk", "s-correct", "s-random", "s-ndcg")

Points = tuple[Sequence[float], Sequence[float]]  # xs and ys


def draw(
    path: Path, title: str, axes: tuple[str, str], lines: Mapping[str, Points], dots: Mapping[str, Sequence[Dot]]
) -> str:
    """Draw lines and dots, each set of them named in the legend; returns the image as Markdown for a page."""
    xs = [x for points in lines.values() for x in points[0]] + [dot.x for each in dots.values() for dot in each]
    ys = [y for points in lines.values() for y in points[1]] + [dot.y for each in dots.values() for dot in each]
    chart = Chart(
        path.stem, title, f"{axes[1]} by {axes[0]}", Axis.around(xs, axes[0]), Axis.around([0.0, *ys], axes[1])
    )
    keys = []
    for series, (what, (x, y)) in zip(_SERIES, lines.items(), strict=False):
        chart.line(x, y, series)
        keys.append(LegendEntry("line", series, what))
    for what, each in dots.items():
        chart.dots(each)
        keys.append(LegendEntry("dot", "", what))
    return image(path, Figure.from_chart(chart, keys), title)


def image(path: Path, figure: Figure, title: str) -> str:
    """Write a figure as a file, in light colours; returns the image as Markdown for a page of docs/benchmarks."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(standalone(figure, "light"), encoding="utf-8")
    return f"![{title}]({Path(os.path.relpath(path, _PAGES)).as_posix()})"
