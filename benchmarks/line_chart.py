"""Drawings for the pages, by the charts of the calibration's report."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.checkout import ROOT
from benchmarks.standalone import standalone
from taugate.calibration.charts import Axis, Chart, Figure, LegendEntry

_PAGES = ROOT / "benchmarks" / "results"
_SERIES = ("s-topk", "s-correct", "s-random", "s-ndcg")

Points = tuple[Sequence[float], Sequence[float]]  # xs and ys


def draw(path: Path, title: str, axes: tuple[str, str], lines: Mapping[str, Points]) -> str:
    """Draw lines in light colours, named in the legend; returns the image as Markdown for a page of benchmarks/results."""
    xs = [x for points in lines.values() for x in points[0]]
    ys = [y for points in lines.values() for y in points[1]]
    chart = Chart(
        path.stem, title, f"{axes[1]} by {axes[0]}", Axis.around(xs, axes[0]), Axis.around([0.0, *ys], axes[1])
    )
    keys = []
    for series, (what, (x, y)) in zip(_SERIES, lines.items(), strict=False):
        chart.line(x, y, series)
        keys.append(LegendEntry("line", series, what))
    path.parent.mkdir(exist_ok=True)
    path.write_text(standalone(Figure.from_chart(chart, keys), "light"), encoding="utf-8")
    return f"![{title}]({Path(os.path.relpath(path, _PAGES)).as_posix()})"
