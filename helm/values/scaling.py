"""How many pods there are, and how they come and go."""

from typing import Literal

from helm.values.base import Group, value

Spread = Literal["ScheduleAnyway", "DoNotSchedule"]


class Autoscaling(Group):
    """A HorizontalPodAutoscaler, by CPU or by queries in progress."""

    enabled: bool = value(False, "off: it needs metrics-server, or an adapter for queueDepth")
    min_replicas: int = value(2, "as many as replicas", ge=1)
    max_replicas: int = value(
        8, "eight pods answer some 2,900 queries/s: 361/s on two processors each (docs/benchmarks/serving.md)", ge=1
    )
    metric: Literal["cpu", "queueDepth"] = value(
        "cpu", "queueDepth is taugate_queue_depth; it needs an adapter such as prometheus-adapter"
    )
    target_cpu_percent: int = value(
        70,
        "percent of resources.requests.cpu: at 80 % of the most that float32 answers, the p99 was below 0.2 s; new "
        "pods take seconds",
        ge=1,
        le=100,
    )
    target_queue_depth: int = value(
        16, "queries in progress per pod: the p99 was 92 ms with 16 of them, 297 ms with 64", ge=1
    )


class DisruptionBudget(Group):
    """A PodDisruptionBudget: how many pods may be away at once while nodes are drained."""

    enabled: bool = value(True, "on: draining one node after another should not stop all pods")
    max_unavailable: int = value(1, "one at a time; minAvailable would let a single pod block a drain for ever", ge=1)


class Rollout(Group):
    """How new pods replace old ones. The wanted number is always there (maxUnavailable is 0)."""

    max_surge: int = value(
        1, "extra pods during a rollout: one at a time, so that a release that fails stops there", ge=1
    )
    pre_stop_seconds: int | None = value(
        None,
        "time between leaving the endpoints and SIGTERM, which the proxies of all nodes need to notice; null: 5, less "
        "settings.drain_seconds, in which the service answers new connections as well",
        ge=0,
    )


class Probe(Group):
    """How often a probe asks, and when it has failed."""

    period_seconds: int = value(10, "time between two requests", ge=1)
    timeout_seconds: int = value(5, "longest wait for an answer: as long as a search may take", ge=1)
    failure_threshold: int = value(3, "failures in a row before it counts as failed", ge=1)


class Probes(Group):
    """Probes, without a key. /readyz is 200 once a release is loaded, verified, and answers its golden queries."""

    startup: Probe = value(
        Probe(period_seconds=2, failure_threshold=300),
        "GET /readyz; the first answer takes 1.6 to 3.6 s; ten minutes leave time to download a release",
    )
    liveness: Probe = value(Probe(), "GET /livez: the process answers, with or without a release")
    readiness: Probe = value(
        Probe(period_seconds=5, failure_threshold=2),
        "GET /readyz; a pod that fails leaves the endpoints within ten seconds",
    )


class TopologySpread(Group):
    """How evenly pods are spread; null: not at all."""

    hostname: Spread | None = value("ScheduleAnyway", "over nodes; ScheduleAnyway: as far as there is room")
    zone: Spread | None = value("ScheduleAnyway", "over zones; ScheduleAnyway: as far as there is room")
