"""Builds panels: the common data source, units, sizes and colours."""

from collections.abc import Mapping, Sequence

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.builders.common import ReduceDataOptions, VizLegendOptions, VizTooltipOptions
from grafana_foundation_sdk.models.common import (
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

from deploy.grafana.promql import Queries

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
NEUTRAL = "text"  # the text colour, for numbers that are neither good nor bad
_HEIGHT = 8

Content = dashboard.Row | timeseries.Panel | statetimeline.Panel | stat.Panel
Colours = Mapping[float | None, str]  # colours by lowest value; None comes first and is for all lower values


def lines(title: str, meaning: str, queries: Queries, unit: str = "none", width: int = 12) -> timeseries.Panel:
    """Return a panel of values over time; series with "calibration" in their legend are dashed."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(meaning)
        .datasource(SOURCE)
        .unit(unit)
        .span(width)
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
            .show_legend(show_legend=True)
        )
    )
    for legend, expression in queries.items():
        panel = panel.with_target(_query(expression, legend))
    return panel


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
    steps = [Threshold(value, colour) for value, colour in colours.items()]
    panel = (
        stat.Panel()
        .title(title)
        .description(meaning)
        .datasource(SOURCE)
        .unit(unit)
        .span(4)
        .height(4)
        .thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
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


def board(title: str, uid: str, meaning: str, content: Sequence[Content]) -> dashboard.Dashboard:
    """Return a dashboard with these rows and panels and with selectors for the Prometheus and its jobs."""
    built = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(meaning)
        .tags(["taugate"])
        .readonly()
        .refresh("30s")
        .time("now-6h", "now")
        .with_variable(dashboard.DatasourceVariable("datasource").type("prometheus").label("Prometheus"))
        .with_variable(
            dashboard.QueryVariable("job")
            .query("label_values(taugate_release_info, job)")
            .datasource(SOURCE)
            .multi(multi=True)
            .include_all(include_all=True)
            .label("job")
        )
    )
    for part in content:
        built = built.with_row(part) if isinstance(part, dashboard.Row) else built.with_panel(part)
    return built
