"""Monitoring: the rules and dashboards of deploy/ for Prometheus and Grafana in a cluster."""

from typing import Literal

from helm.values.base import Group, Name, SecretEntry, Texts, group, value


class ServiceMonitor(Group):
    """A ServiceMonitor or PodMonitor, by which the Prometheus operator scrapes the pods."""

    enabled: bool = value(False, "off: it needs the CustomResourceDefinitions of the Prometheus operator")
    kind: Literal["ServiceMonitor", "PodMonitor"] = value("ServiceMonitor", "PodMonitor: without the Service")
    key: SecretEntry | None = value(
        None,
        "SECRET or SECRET/ENTRY (entry `key`) with an API key of scope `metrics`; /metrics needs it if the "
        "service has keys",
    )
    job: Name = value("taugate", "the label `job`; the alerts about targets name it, and the namespace")


class PrometheusRule(Group):
    """Alerts and recording rules: deploy/prometheus/rules, unchanged except for the links to runbooks."""

    enabled: bool = value(False, "off: it needs the CustomResourceDefinitions of the Prometheus operator")
    runbooks_url: str | None = value(
        None,
        "URL of your copy of docs/runbooks, such as https://wiki.example.com/taugate/runbooks, for links in alerts; "
        "null: alerts name the page's path in the repository",
        pattern=r"^https?://[^\s{}']+$",  # braces would be a template of Prometheus; the rules quote it with '
    )


class Dashboards(Group):
    """Dashboards for Grafana's sidecar: deploy/grafana/dashboards, unchanged except for links, one ConfigMap each."""

    enabled: bool = value(False, "off: it needs a Grafana with the sidecar")
    labels: Texts = value({"grafana_dashboard": "1"}, "labels by which the sidecar finds them, as in Grafana's chart")
    annotations: Texts = value({}, "annotations, such as grafana_folder: taugate")
    playground_url: str | None = value(
        None,
        "URL of the playground, such as https://search.example.com/playground, for a link; null: that of a "
        "port-forward to this machine's port 8000",
        pattern=r"^https?://[^\s\"\\]+$",  # it becomes a string in JSON
    )


class Metrics(Group):
    """Metrics for Prometheus, and dashboards for Grafana."""

    labels: Texts = value(
        {},
        "labels of monitors and rules, by which the operator's Prometheus selects them: release: kube-prometheus-stack",
    )
    service_monitor: ServiceMonitor = group(ServiceMonitor())
    prometheus_rule: PrometheusRule = group(PrometheusRule())
    dashboards: Dashboards = group(Dashboards())


class Tests(Group):
    """`helm test`: a pod that searches."""

    key: SecretEntry | None = value(
        None,
        "SECRET or SECRET/ENTRY (entry `key`) with an API key of scope `search`; if the service has keys and this "
        "is empty, there is no test",
    )
