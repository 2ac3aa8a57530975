"""Charts as inline SVG: lines, bands, bars, dots and marks on two axes.

Colours, dashes and fonts come from the page's style sheet by class, so a chart follows light and dark mode and the
width of the screen. Series differ by colour and by dash. Nothing is clipped: callers keep values within the axes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

from markupsafe import Markup

Form = Literal["number", "percent", "none"]
_TICKS = 7  # maximum number of steps that fit on a phone
# A phone shows a chart at 0.85 of this width, so a text of 14 units has 12 px.
WIDTH, HEIGHT = 420.0, 280.0
LEFT, RIGHT, TOP, BOTTOM = 56.0, 396.0, 28.0, 234.0
_DIGIT = 8.0  # width of a digit at 14 units
_ROOM = 15.0  # minimum distance between the centres of a label and of a dot or another label
_AROUND = ((0, -_ROOM), (0, _ROOM), (_ROOM, 0), (-_ROOM, 0), (11, -11), (-11, -11), (11, 11), (-11, 11), (0, -30))


@dataclass(frozen=True)
class Axis:
    """A range of values with its label."""

    low: float
    high: float
    label: str
    form: Form = "number"
    # Place probabilities by the logarithm of their odds: 0.01 and 0.001 are as far apart as 0.99 and 0.999
    odds: bool = False

    @classmethod
    def around(cls, values: Iterable[float], label: str, form: Form = "number", *, odds: bool = False) -> Self:
        """Span one or more values; a single value gets a margin on both sides."""
        listed = list(values)
        low, high = min(listed), max(listed)
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            room = 0.1 * abs(low) or 0.5
            low, high = low - room, high + room
        return cls(low, high, label, form, odds)

    def place(self, value: float, start: float, end: float) -> float:
        """Return the pixel of a value, with `low` at `start` and `high` at `end`."""
        share = (self._of(value) - self._of(self.low)) / (self._of(self.high) - self._of(self.low))
        return start + share * (end - start)

    def ticks(self) -> list[tuple[float, str]]:
        """Return round values from low to high, with their texts."""
        if self.form == "none":
            return []
        if self.odds:
            return [(value, f"{value:g}") for value in self._probabilities()]
        step = _round_step((self.high - self.low) / _TICKS)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [(number * step, self._text(number * step, step)) for number in range(first, last + 1)]

    def _of(self, value: float) -> float:
        return math.log(value / (1 - value)) if self.odds else value

    def _probabilities(self) -> list[float]:
        """Return tenths, hundredths, … from both ends, and more tenths if these are too few."""
        ends = [10.0**-power for power in range(9, 0, -1)]
        powers = [*ends, 0.5, *(1 - power for power in reversed(ends))]
        for values in (powers, sorted({*powers, 0.2, 0.3, 0.7, 0.8})):
            inside = [value for value in values if self.low <= value <= self.high]
            if len(inside) >= 3:
                break
        return inside

    def _text(self, value: float, step: float) -> str:
        """Format a tick with as many digits as distinguish it from the next."""
        scale = 100 if self.form == "percent" else 1
        digits = max(0, -math.floor(math.log10(step * scale) + 1e-9))
        return f"{value * scale:z.{digits}f}" + (" %" if self.form == "percent" else "")


def _round_step(min_step: float) -> float:
    """Return the smallest of 1, 2, 5, 10, … times a power of ten that is not below `min_step`."""
    power = 10.0 ** math.floor(math.log10(min_step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= min_step * (1 - 1e-9))


@dataclass(frozen=True)
class Dot:
    """A marked point."""

    x: float
    y: float
    label: str
    hint: str


@dataclass
class Chart:
    """A drawing on two axes, to which marks are added one by one.

    `series` and `kind` of the drawing methods are classes of the style sheet; values are those of the axes.
    """

    name: str  # letters only, unique on the page
    title: str
    description: str
    x: Axis
    y: Axis
    _marks: list[Markup] = field(default_factory=list)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the pixel of a point."""
        return self.x.place(x, LEFT, RIGHT), self.y.place(y, BOTTOM, TOP)

    def line(self, xs: Iterable[float], ys: Iterable[float], series: str) -> None:
        """Draw a line through points."""
        self._add('<path class="line {}" d="{}"/>', series, self._path(xs, ys))

    def steps(self, xs: Sequence[float], ys: Sequence[float], series: str) -> None:
        """Draw a staircase, in which each y holds from its x to the next."""
        corners = [(x, y) for at, x in enumerate(xs) for y in ([ys[at - 1], ys[at]] if at else [ys[0]])]
        self.line([x for x, _ in corners], [y for _, y in corners], series)

    def band(self, xs: Sequence[float], lower: Sequence[float], upper: Sequence[float], series: str) -> None:
        """Draw the area between two lines over the same xs."""
        path = self._path([*xs, *reversed(xs)], [*lower, *reversed(upper)])
        self._add('<path class="band {}" d="{}Z"/>', series, path)

    def bar(self, left: float, right: float, height: float, label: str, series: str) -> None:
        """Draw a bar from `left` to `right` and from 0 to `height`, with its label on top."""
        (x0, y0), (x1, y1) = self.at(left, height), self.at(right, 0)
        sizes = (_px(x0 + 2), _px(y0), _px(x1 - x0 - 4), _px(y1 - y0))
        self._add('<rect class="bar {}" x="{}" y="{}" width="{}" height="{}"/>', series, *sizes)
        self._text("small", "middle", (x0 + x1) / 2, y0 - 4, label)

    def upright(self, x: float, label: str, kind: str, *, low: bool = False) -> None:
        """Draw a vertical mark over the whole height, with an optional label at the top, or at the bottom if `low`."""
        px, _ = self.at(x, self.y.low)
        self._add('<path class="mark {}" d="M{} {}V{}"/>', kind, _px(px), _px(TOP), _px(BOTTOM))
        if not label:
            return
        anchor, shift = ("start", 5) if px < (LEFT + RIGHT) / 2 else ("end", -5)
        self._text("label", anchor, px + shift, BOTTOM - 8 if low else TOP + 13, label)

    def level(self, y: float, kind: str) -> None:
        """Draw a horizontal mark over the whole width."""
        _, py = self.at(self.x.low, y)
        self._add('<path class="mark {}" d="M{} {}H{}"/>', kind, _px(LEFT), _px(py), _px(RIGHT))

    def dots(self, dots: Sequence[Dot]) -> None:
        """Draw dots, placing their labels clear of each other and of the other dots if there is room."""
        taken = [self.at(dot.x, dot.y) for dot in dots]
        for dot, (px, py) in zip(dots, list(taken), strict=True):
            self._add(
                '<circle class="dot" r="5" cx="{}" cy="{}"><title>{}</title></circle>', _px(px), _px(py), dot.hint
            )
            if dot.label:
                spots = [(px + dx, py + dy) for dx, dy in _AROUND if LEFT < px + dx < RIGHT and TOP < py + dy < BOTTOM]
                spot = next((s for s in spots if all(math.dist(s, t) >= _ROOM for t in taken)), (px, py - _ROOM))
                taken.append(spot)
                self._text("label", "middle", spot[0], spot[1] + 5, dot.label)

    def svg(self) -> Markup:
        """Return the chart as SVG; the same calls give the same text."""
        head = Markup(
            '<svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-labelledby="{}-title {}-desc">'
            '<title id="{}-title">{}</title><desc id="{}-desc">{}</desc>'
        ).format(WIDTH, HEIGHT, *[self.name] * 3, self.title, self.name, self.description)
        return head + self._axes() + Markup("").join(self._marks) + Markup("</svg>")

    def _axes(self) -> Markup:
        drawn = Chart(self.name, "", "", self.x, self.y)
        for value, text in self.y.ticks():
            drawn.level(value, "grid")
            drawn._text("tick", "end", LEFT - 8, self.at(self.x.low, value)[1] + 5, text)
        free = 0.0  # left edge of the free space for the next tick
        for value, text in self.x.ticks():
            px, _ = self.at(value, self.y.low)
            drawn._add('<path class="mark grid" d="M{} {}v5"/>', _px(px), _px(BOTTOM))
            if px - _DIGIT * len(text) / 2 >= free:
                drawn._text("tick", "middle", px, BOTTOM + 20, text)
                free = px + _DIGIT * (len(text) / 2 + 1)
        drawn._add('<path class="mark axis" d="M{} {}H{}"/>', _px(LEFT), _px(BOTTOM), _px(RIGHT))
        drawn._text("name", "start", 4, 15, self.y.label)
        drawn._text("name", "middle", (LEFT + RIGHT) / 2, HEIGHT - 6, self.x.label)
        return Markup("").join(drawn._marks)

    def _path(self, xs: Iterable[float], ys: Iterable[float]) -> str:
        points = (self.at(x, y) for x, y in zip(xs, ys, strict=True))
        return "M" + "L".join(f"{_px(x)} {_px(y)}" for x, y in points)

    def _text(self, kind: str, anchor: str, x: float, y: float, text: str) -> None:
        self._add('<text class="{}" text-anchor="{}" x="{}" y="{}">{}</text>', kind, anchor, _px(x), _px(y), text)

    def _add(self, pattern: str, *values: object) -> None:
        self._marks.append(Markup(pattern).format(*values))  # noqa: S704 (the patterns are ours, values are escaped)


@dataclass(frozen=True)
class LegendEntry:
    """One entry of a legend."""

    mark: str  # line, band, dot or mark, as in the drawing
    series: str
    text: str

    @property
    def sample(self) -> Markup:
        """Small sample of the mark, 34 by 14 units."""
        shapes = {
            "line": '<path class="line {}" d="M1 7H33"/>',
            "mark": '<path class="mark {}" d="M1 7H33"/>',
            "band": '<path class="band {}" d="M1 1H33V13H1Z"/>',
            "dot": '<circle class="dot {}" r="5" cx="17" cy="7"/>',
        }
        return Markup(shapes[self.mark]).format(self.series)  # noqa: S704 (ours; the class is escaped)

    @property
    def swatch(self) -> Markup:
        """The sample as a drawing beside a line of text."""
        return Markup('<svg class="swatch" viewBox="0 0 34 14" aria-hidden="true">{}</svg>').format(self.sample)


@dataclass(frozen=True)
class Figure:
    """A drawing with its legend."""

    caption: str
    svg: Markup
    keys: list[LegendEntry]

    @classmethod
    def from_chart(cls, chart: Chart, keys: list[LegendEntry]) -> Self:
        """Make a figure of a finished chart, with its title as the caption."""
        return cls(chart.title, chart.svg(), keys)


def _px(value: float) -> str:
    return f"{value:z.1f}"
