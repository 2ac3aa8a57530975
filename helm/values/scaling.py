"""The number of pods, and how they are replaced and spread."""

from typing import Literal

from helm.values.base import AsInKubernetes, Group, value

SpreadRule = Literal["ScheduleAnyway", "DoNotSchedule"]


class Autoscaling(Group):
    """A HorizontalPodAutoscaler, by CPU or by queries in progress."""

    enabled: bool = value(False, "off: it needs metrics-server, or an adapter for queueDepth")
    min_replicas: int = value(2, "the default of replicas", ge=1)
    max_replicas: int = value(
        8, "eight pods answer some 2,900 queries/s: 361/s on two processors each (benchmarks/results/serving.md)", ge=1
    )
    metric: Literal["cpu", "queueDepth"] = value(
        "cpu", "queueDepth is taugate_queue_depth; it needs an adapter such as prometheus-adapter"
    )
    target_cpu_percent: int = value(
        70,
        "percent of resources.requests.cpu: at 80 % of the highest float32 throughput, the p99 was below 0.2 s; new "
        "pods start within seconds",
        ge=1,
        le=100,
    )
    target_queue_depth: int = value(
        16, "queries in progress per pod: the p99 was 92 ms with 16 of them, 297 ms with 64", ge=1
    )
    behavior: AsInKubernetes = value({}, "how fast it scales, as in Kubernetes; empty: Kubernetes' own rules")


class DisruptionBudget(Group):
    """A PodDisruptionBudget, which limits how many pods may be missing while nodes are drained."""

    enabled: bool = value(True, "on: draining one node after another should not stop all pods")
    max_unavailable: int = value(1, "one at a time; with minAvailable a single pod could block a drain forever", ge=1)


class Rollout(Group):
    """How new pods replace old ones. The desired number of pods is always available (maxUnavailable is 0)."""

    max_surge: int = value(
        1, "extra pods during a rollout: one at a time, so that a failing release stops the rollout", ge=1
    )
    pre_stop_seconds: int | None = value(
        None,
        "time between removal from the endpoints and SIGTERM, in which the proxies of all nodes update; null: 5 minus "
        "settings.drain_seconds, during which the service also accepts connections",
        ge=0,
    )


class Probes(Group):
    """Probes, without a key; fields as in Kubernetes replace the chart's. Timeouts are as long as a search may take."""

    startup: AsInKubernetes = value(
        {},
        "GET /readyz; {periodSeconds: 2, timeoutSeconds: 5, failureThreshold: 300}: the first 200 takes 1.6 to 3.6 s; "
        "ten minutes leave time to download a release",
    )
    liveness: AsInKubernetes = value(
        {},
        "GET /livez: the process responds, with or without a release; {periodSeconds: 10, timeoutSeconds: 5, "
        "failureThreshold: 3}",
    )
    readiness: AsInKubernetes = value(
        {},
        "GET /readyz: a release is loaded, verified, and passes its golden queries; {periodSeconds: 5, timeoutSeconds: "
        "5, failureThreshold: 2}: a failing pod is removed from the endpoints within ten seconds",
    )


class TopologySpread(Group):
    """How pods are spread; null: no rule."""

    hostname: SpreadRule | None = value("ScheduleAnyway", "over nodes; ScheduleAnyway: if possible")
    zone: SpreadRule | None = value("ScheduleAnyway", "over zones; ScheduleAnyway: if possible")
