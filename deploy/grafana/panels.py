"""Builds panels: the common data source, units, axes, sizes and colours."""

from collections.abc import Mapping

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.builders.common import (
    GraphThresholdsStyleConfig,
    ReduceDataOptions,
    VizLegendOptions,
    VizTooltipOptions,
)
from grafana_foundation_sdk.models.common import (
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMapping,
    ValueMappingResult,
)

from deploy.grafana.promql import INSTALLATION, Queries

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
NEUTRAL = "text"  # the text colour, for numbers that are neither good nor bad
_HEIGHT = 8
_BAND_OPACITY = 15  # per cent: lines of other series remain visible

Content = dashboard.Row | timeseries.Panel | statetimeline.Panel | stat.Panel
Colours = Mapping[float | None, str]  # colours by lowest value; None comes first and is for all lower values


def lines(
    title: str, meaning: str, queries: Queries, unit: str = "short", *, low: float | None = 0, high: float | None = None
) -> timeseries.Panel:
    """Return a panel of values over time; series with "calibration" in their legend are dashed.

    Args:
        title: Its heading.
        meaning: Its description.
        queries: Expressions by legend.
        unit: Grafana's name of the unit.
        low: Lower end of the axis, None for that of the values.
        high: Upper end of the axis, None for that of the values.
    """
    panel = (
        timeseries.Panel()
        .title(title)
        .description(meaning)
        .datasource(SOURCE)
        .unit(unit)
        .span(12)
        .height(_HEIGHT)
        .line_width(2)
        .fill_opacity(0)
        .show_points(VisibilityMode.NEVER)
        .override_by_regexp("calibration", [DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 6]})])
        .tooltip(VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
        .legend(
            VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .calcs(["min", "max"])
            .show_legend(show_legend=True)
        )
    )
    if low is not None:
        panel = panel.min(low)
    if high is not None:
        panel = panel.max(high)
    for legend, expression in queries.items():
        panel = panel.with_target(_query(expression, legend))
    return panel


def limited(panel: timeseries.Panel, limits: Mapping[float, str]) -> timeseries.Panel:
    """Draw dashed lines across a panel, in colours by value."""
    style = GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)
    steps: Colours = {None: "transparent", **dict(limits.items())}
    return panel.thresholds(_steps(steps)).thresholds_style(style)


def banded(panel: timeseries.Panel, bands: Mapping[str, str]) -> timeseries.Panel:
    """Fill the areas between pairs of series: legends of the lower series by those of the upper ones."""
    for upper, lower in bands.items():
        fill = {"custom.fillBelowTo": lower, "custom.fillOpacity": _BAND_OPACITY}
        panel = panel.override_by_name(upper, [DynamicConfigValue(name, value) for name, value in fill.items()])
    return panel


def _steps(colours: Colours) -> dashboard.ThresholdsConfig:
    steps = [Threshold(value, colour) for value, colour in colours.items()]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def states(title: str, meaning: str, expression: str, legend: str, width: int = 24) -> statetimeline.Panel:
    """Return a panel with a band per series, green at 0 and red at 1."""
    words = ValueMap(
        options={
            "0": ValueMappingResult(text="quiet", color="green", index=0),
            "1": ValueMappingResult(text="alarm", color="red", index=1),
        }
    )
    return (
        statetimeline.Panel()
        .title(title)
        .description(meaning)
        .datasource(SOURCE)
        .span(width)
        .height(_HEIGHT)
        .mappings([words])
        .with_target(_query(expression, legend))
    )


def number(
    title: str,
    meaning: str,
    expression: str,
    colours: Colours,
    unit: str = "none",
    texts: Mapping[int, str] | None = None,
) -> stat.Panel:
    """Return a panel with the latest value in large digits.

    Colours are required, because Grafana's default is red from 80 on for any quantity. `texts` replaces numbers that
    stand for a state.
    """
    panel = (
        stat.Panel()
        .title(title)
        .description(meaning)
        .datasource(SOURCE)
        .unit(unit)
        .span(4)
        .height(4)
        .thresholds(_steps(colours))
        .reduce_options(ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(_query(expression, ""))
    )
    return panel if texts is None else panel.mappings(_mappings(texts))


def _mappings(texts: Mapping[int, str]) -> list[ValueMapping]:
    """Map numbers to the texts of their states, keeping the colours of the numbers."""
    options = {
        str(value): ValueMappingResult(text=text, index=index) for index, (value, text) in enumerate(texts.items())
    }
    return [ValueMap(options=options)]


def _query(expression: str, legend: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(expression).legend_format(legend).datasource(SOURCE)


def firing() -> stat.Panel:
    """Return a panel with the number of alerts that fire."""
    return number(
        "Alerts firing",
        "Taugate's alerts in Prometheus. The runbooks, linked above, say what to do.",
        f'count(ALERTS{{{INSTALLATION},alertname=~"Taugate.*",alertstate="firing"}}) or vector(0)',
        {None: "green", 1: "red"},
    )
