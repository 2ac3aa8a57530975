"""Drawings of the page: the charts of the calibration's report, each as a file of its own with its colours in it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from taugate.calibration.charts import HEIGHT, WIDTH, Axis, Chart

_FOLDER = Path(__file__).resolve().parents[1] / "results" / "evidence"
_LINES = {
    "blue": "stroke:#0b62a4",
    "orange": "stroke:#c2570c;stroke-dasharray:7 4",
    "grey": "stroke:#666;stroke-dasharray:2 4",
}
_STYLE = (
    "svg{background:#fff}text{font:14px sans-serif;fill:#444}path{fill:none}.line{stroke-width:2.5}"
    ".grid{stroke:#ddd}.axis{stroke:#888}.limit{stroke:#888;stroke-width:1.5;stroke-dasharray:8 4}"
) + "".join(f".{name}{{{style}}}" for name, style in _LINES.items())


def lines(
    name: str,
    title: str,
    axes: tuple[str, str],
    drawn: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    level: float,
) -> str:
    """Write name.svg, with a line for each series and a dashed level; returns the image and its key as Markdown."""
    xs, ys = (
        Axis.around([each for pair in drawn.values() for each in pair[at]] + extra, axes[at])
        for at, extra in enumerate(([], [0.0, level]))
    )
    chart = Chart(name, title, f"{axes[1]} by {axes[0]}", xs, ys)
    chart.level(level, "limit")
    for colour, (x, y) in zip(_LINES, drawn.values(), strict=False):
        chart.line(x, y, colour)
    _FOLDER.mkdir(exist_ok=True)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{1.5 * WIDTH:.0f}" height="{1.5 * HEIGHT:.0f}" '
    drawing = str(chart.svg()).replace("<svg ", head, 1).replace("</desc>", f"</desc><style>{_STYLE}</style>", 1)
    (_FOLDER / f"{name}.svg").write_text(f"{drawing}\n", encoding="utf-8")
    key = "; ".join(f"{colour}: {series}" for colour, series in zip(_LINES, drawn, strict=False))
    return f"![{title}](evidence/{name}.svg)\n\n*{key}; dashed level: {level:g}.*"


def ranked(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Their places from the lowest to the highest, in percent, and the values themselves."""
    return [100 * place / max(1, len(values) - 1) for place in range(len(values))], sorted(values)
