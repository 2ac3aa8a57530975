"""A chart with its caption and the key to its lines, as the page shows them."""

from dataclasses import dataclass

from markupsafe import Markup

from taugate.calibration.charts.chart import Chart


@dataclass(frozen=True)
class Key:
    """One entry of a legend; mark: line, band, dot, mark or bar, as in the drawing; series: its class."""

    mark: str
    series: str
    text: str

    @property
    def swatch(self) -> Markup:
        """A small sample of the line."""
        shapes = {
            "line": '<path class="line {}" d="M1 7H33"/>',
            "mark": '<path class="mark {}" d="M1 7H33"/>',
            "band": '<path class="band {}" d="M1 1H33V13H1Z"/>',
            "dot": '<circle class="dot {}" r="5" cx="17" cy="7"/>',
        }
        inside = Markup(shapes[self.mark]).format(self.series)  # noqa: S704 (ours; the class is escaped)
        return Markup('<svg class="swatch" viewBox="0 0 34 14" aria-hidden="true">') + inside + Markup("</svg>")


@dataclass(frozen=True)
class Figure:
    """caption: what is drawn, in a few words."""

    caption: str
    svg: Markup
    keys: list[Key]

    @classmethod
    def of(cls, chart: Chart, keys: list[Key]) -> "Figure":
        """The chart's title is its caption."""
        return cls(chart.title, chart.svg(), keys)
