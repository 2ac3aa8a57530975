"""Plots of benchmark pages, drawn by the chart code of the calibration report.

A plot is drawn from its table when the site is built, so that the two never differ. It is inline SVG above the table;
docs/stylesheets/site.css sets its colours.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from taugate.calibration.charts import Axis, Chart

Points = tuple[list[float], list[float]]


class PlotError(Exception):
    """A page lacks the table of a plot; the message names both."""


@dataclass(frozen=True)
class Table:
    """A Markdown table: names of columns, and the cells of each row."""

    columns: list[str]
    rows: list[list[str]]

    def column(self, name: str, row: Sequence[str]) -> str:
        """Return the cell of a row in the column of that name."""
        return row[self.columns.index(name)]


@dataclass(frozen=True)
class Plot:
    """A plot of one table.

    Attributes:
        page: Path of the page on the site.
        columns: First columns of the table; the first such table on the page is drawn.
        title: Title, which stands below the plot.
        x: Label of the horizontal axis.
        y: Label of the vertical axis.
        series: Returns the xs and ys of each line by name, at most six lines.
    """

    page: str
    columns: tuple[str, ...]
    title: str
    x: str
    y: str
    series: Callable[[Table], Mapping[str, Points]]

    def insert(self, text: str) -> str:
        """Return the text of a page with the plot above its table; raises PlotError if the page has no such table."""
        start = re.search(rf"^\| {re.escape(' | '.join(self.columns))} \|", text, re.MULTILINE)
        if start is None:
            raise PlotError(f"{self.page}: has no table of {', '.join(self.columns)}; correct deploy/site/plots.py")
        lines = text[start.start() :].split("\n\n", 1)[0].splitlines()
        columns, _, *rows = ([cell.strip() for cell in line.strip("| ").split(" |")] for line in lines)
        return text[: start.start()] + self._figure(self.series(Table(columns, rows))) + text[start.start() :]

    def _figure(self, series: Mapping[str, Points]) -> str:
        horizontal = Axis.around([x for xs, _ in series.values() for x in xs], self.x)
        vertical = Axis.around([0.0, *(y for _, ys in series.values() for y in ys)], self.y)
        chart = Chart(
            re.sub(r"\W+", "-", self.title.lower()), self.title, f"{self.y} by {self.x}", horizontal, vertical
        )
        legend = Markup("")
        for number, (name, (xs, ys)) in enumerate(series.items()):
            chart.line(xs, ys, f"plot-{number}")
            legend += Markup('<li class="plot-{}">{}</li>').format(number, name)
        caption = Markup("<figcaption>{}<ul>{}</ul></figcaption>").format(escape(self.title), legend)
        return f'<figure class="plot">{chart.svg()}{caption}</figure>\n\n'


def _number(cell: str) -> float:
    return float(cell.replace(",", "").split()[0])


def _replies_by_clients(table: Table) -> Mapping[str, Points]:
    series: dict[str, Points] = {}
    for row in table.rows:
        xs, ys = series.setdefault(table.column("service", row), ([], []))
        xs.append(_number(table.column("clients", row)))
        ys.append(_number(table.column("replies/s", row)))
    return series


def _queries_to_the_alarm(table: Table) -> Mapping[str, Points]:
    """Return medians by the share of off-topic queries; shares without an alarm are left out."""
    series: dict[str, Points] = {}
    for name in table.columns[1:]:
        medians = {}
        for row in table.rows:
            share = re.fullmatch(r"(?:(\d+) %|all queries) off-topic", row[0])
            median = table.column(name, row).split(" / ")[0]
            if share and median != "none":
                medians[float(share[1] or 100)] = _number(median)
        medians = {share: medians[share] for share in sorted(medians) if 5 <= share <= 20}
        series[name] = (list(medians), list(medians.values()))
    return series


def _kept_by_labels(table: Table) -> Mapping[str, Points]:
    """Return the rows of squad_v2_dev whose loss is limited to .02 or .05."""
    series = {}
    for row in table.rows:
        name, loss, statement = row[:3]
        if name == "squad_v2_dev" and loss in (".02", ".05"):
            xs = [_number(column) for column in table.columns[3:]]
            series[f"loss {loss}, {statement}"] = (xs, [_number(cell) for cell in row[3:]])
    return series


PLOTS = (
    Plot(
        "benchmarks/serving.md",
        ("clients", "service", "replies/s"),
        "Replies per second by the number of clients, every query new",
        "clients",
        "replies/s",
        _replies_by_clients,
    ),
    Plot(
        "benchmarks/drift.md",
        ("change", "squad_v2_dev"),
        "Queries until the alarm by the share that is off-topic",
        "off-topic queries, %",
        "queries until the alarm, median",
        _queries_to_the_alarm,
    ),
    Plot(
        "benchmarks/decisions.md",
        ("set", "δ", "statement", "100"),
        "Results kept by the number of labelled queries, squad_v2_dev",
        "labelled queries",
        "share of results kept",
        _kept_by_labels,
    ),
)


def with_plots(text: str, page: str) -> str:
    """Return the text of a page with its plots.

    Args:
        text: Text of the page.
        page: Path of the page on the site.

    Raises:
        PlotError: If a table is missing.
    """
    for plot in PLOTS:
        if plot.page == page:
            text = plot.insert(text)
    return text
