"""Builds a dashboard: its selectors, the events that all of its panels show, and links to what else people need."""

from collections.abc import Sequence

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import AnnotationQuery, DashboardLinkType

from deploy.grafana.panels import SOURCE, Content
from deploy.grafana.promql import INSTALLATION, selected

# Of docker-compose.yml; the chart puts its own settings in their places.
PLAYGROUND = "http://127.0.0.1:8000/playground"
RUNBOOKS = "http://127.0.0.1:9090/user/runbooks"
_TAG = "taugate"
_STEP_SECONDS = 60


class _Event(AnnotationQuery, Builder[AnnotationQuery]):
    """An event at each time at which an expression has series; the labels of a series make the title."""

    def __init__(self, name: str, colour: str, title: str, expression: str) -> None:
        super().__init__(name=name, datasource=SOURCE, icon_color=colour, expr=expression)
        self._title = title

    def to_json(self) -> dict[str, object]:
        """Return the fields of the SDK with those that only annotations by Prometheus have."""
        return super().to_json() | {"titleFormat": self._title, "step": f"{_STEP_SECONDS}s"}

    def build(self) -> AnnotationQuery:
        """Return the event itself, because a dashboard takes builders."""
        return self


_SERVED = f"{selected('taugate_release_info')} == 1"
_BEFORE = f"{selected('taugate_release_info')} offset {_STEP_SECONDS}s == 1"
_PROMOTED = f"max by (namespace, job, release) ({_SERVED}) unless max by (namespace, job, release) ({_BEFORE})"
_EVENTS = (
    _Event("Promotions", "blue", "{{namespace}} {{job}} serves {{release}}", _PROMOTED),
    _Event(
        "Reloads",
        "purple",
        "{{instance}}: reload {{outcome}}",
        "sum by (instance, outcome) (increase("
        f'taugate_reloads_total{{{INSTALLATION},outcome=~"loaded|failed"}}[{_STEP_SECONDS}s])) > 0',
    ),
    _Event("Alerts", "red", "{{alertname}}", f'ALERTS{{{INSTALLATION},alertname=~"Taugate.*",alertstate="firing"}}'),
)


def _links() -> list[dashboard.DashboardLink]:
    others = dashboard.DashboardLink("Dashboards").type(DashboardLinkType.DASHBOARDS).tags([_TAG])
    pages = {"Runbooks": f"{RUNBOOKS}/index.md", "Playground": PLAYGROUND}
    return [
        others.as_dropdown(as_dropdown=True).include_vars(include_vars=True).keep_time(keep_time=True),
        *(
            dashboard.DashboardLink(title).type(DashboardLinkType.LINK).icon("external link").url(url)
            for title, url in pages.items()
        ),
    ]


def _selector(label: str) -> dashboard.QueryVariable:
    # "All" is .*, which also finds series without a namespace, as there are outside Kubernetes.
    chosen = dashboard.QueryVariable(label).query(f"label_values(taugate_release_info, {label})").datasource(SOURCE)
    return chosen.multi(multi=True).include_all(include_all=True).all_value(".*").label(label)


def board(title: str, uid: str, meaning: str, content: Sequence[Content]) -> dashboard.Dashboard:
    """Return a dashboard with these rows and panels, with selectors for the Prometheus, its namespaces and jobs."""
    built = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(meaning)
        .tags([_TAG])
        .readonly()
        .refresh("30s")
        .time("now-6h", "now")
        .with_variable(dashboard.DatasourceVariable("datasource").type("prometheus").label("Prometheus"))
    )
    for label in ("namespace", "job"):
        built = built.with_variable(_selector(label))
    for event in _EVENTS:
        built = built.annotation(event)
    for link in _links():
        built = built.link(link)
    for part in content:
        built = built.with_row(part) if isinstance(part, dashboard.Row) else built.with_panel(part)
    return built
