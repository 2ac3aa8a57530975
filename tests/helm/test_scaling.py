"""HorizontalPodAutoscaler and PodDisruptionBudget."""

import pytest

from tests.helm.rendered import KEYS, Values, at, render


def test_no_autoscaler_by_default() -> None:
    assert render(KEYS).of("HorizontalPodAutoscaler") == []


@pytest.mark.parametrize(
    ("values", "metric"),
    [
        (
            {"targetCpuPercent": 55},
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 55}},
            },
        ),
        (
            {"targetQueueDepth": 32},
            {
                "type": "Pods",
                "pods": {
                    "metric": {"name": "taugate_queue_depth"},
                    "target": {"type": "AverageValue", "averageValue": "32"},
                },
            },
        ),
    ],
)
def test_autoscaler_by_cpu_or_queue(values: Values, metric: dict) -> None:
    rendered = render(KEYS, {"replicas": 3, "autoscaling": {"enabled": True, "maxReplicas": 5, **values}})
    spec = rendered.one("HorizontalPodAutoscaler")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"], spec["metrics"]) == (3, 5, [metric])
    assert spec["scaleTargetRef"]["name"] == rendered.one("Deployment")["metadata"]["name"]
    # A number of the chart's own would undo the autoscaler's with each upgrade; without a cluster none is known.
    assert "replicas" not in rendered.one("Deployment")["spec"]


def test_null_replicas_leave_the_number_to_others() -> None:
    assert render(KEYS).one("Deployment")["spec"]["replicas"] == 2
    assert "replicas" not in render(KEYS, {"replicas": None}).one("Deployment")["spec"]


def test_zero_replicas_are_written() -> None:
    assert render(KEYS, {"replicas": 0}).one("Deployment")["spec"]["replicas"] == 0


def test_queue_metric_exists_in_service() -> None:
    from taugate.service.metrics import Metrics

    assert "taugate_queue_depth" in {family.name for family in Metrics().registry.collect()}


def test_disruption_budget_can_be_disabled() -> None:
    assert render(KEYS, at("podDisruptionBudget.maxUnavailable", None)).of("PodDisruptionBudget") == []


def test_disruption_budget_allows_one_and_unready() -> None:
    rendered = render(KEYS)
    spec = rendered.one("PodDisruptionBudget")["spec"]
    assert (spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    assert spec["selector"] == rendered.one("Deployment")["spec"]["selector"]
