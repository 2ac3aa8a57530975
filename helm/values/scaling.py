"""How many pods there are, and how they come and go."""

from typing import Literal

from helm.values.base import Group, value

Spread = Literal["ScheduleAnyway", "DoNotSchedule"]


class Autoscaling(Group):
    """A HorizontalPodAutoscaler, on processors or on queries in hand."""

    enabled: bool = value(False, "off: it needs metrics-server, or an adapter for queueDepth")
    min_replicas: int = value(2, "as replicas", ge=1)
    max_replicas: int = value(8, "some 2,900 queries/s: 361/s on two processors (docs/benchmarks/serving.md)", ge=1)
    metric: Literal["cpu", "queueDepth"] = value(
        "cpu", "queueDepth is taugate_queue_depth, which an adapter such as prometheus-adapter has to offer"
    )
    target_cpu_percent: int = value(
        70,
        "percent of resources.requests.cpu: at 80 % of what float32 can do the p99 was below 0.2 s; new pods take "
        "seconds",
        ge=1,
        le=100,
    )
    target_queue_depth: int = value(
        16, "queries in hand a pod: the p99 was 92 ms with 16 of them, 297 ms with 64", ge=1
    )


class DisruptionBudget(Group):
    """A PodDisruptionBudget: how many pods a drain of nodes may take at once."""

    enabled: bool = value(True, "a drain of one node after another should not take all")
    max_unavailable: int = value(1, "one at a time; with minAvailable a single pod would block a drain for ever", ge=1)


class Rollout(Group):
    """How pods take the place of others. None of those wanted is missing meanwhile (maxUnavailable is 0)."""

    max_surge: int = value(
        1, "pods more than wanted meanwhile: one at a time, as a release that fails should stop there", ge=1
    )
    pre_stop_seconds: int = value(
        5, "between its leaving the endpoints and SIGTERM: proxies of all nodes need a moment to hear of it", ge=0
    )


class Probe(Group):
    """How often is asked, and when it has failed."""

    period_seconds: int = value(10, "between two questions", ge=1)
    timeout_seconds: int = value(5, "without an answer it has failed: as long as a search may take", ge=1)
    failure_threshold: int = value(3, "failures in a row that count", ge=1)


class Probes(Group):
    """Routes that need no key. /readyz is 200 once a release is loaded, verified and answers its golden queries."""

    startup: Probe = value(
        Probe(period_seconds=2, failure_threshold=300),
        "GET /readyz; first answers come after 1.6 to 3.6 s, and ten minutes are for a release that is downloaded",
    )
    liveness: Probe = value(Probe(), "GET /livez: the process answers, whatever it serves")
    readiness: Probe = value(
        Probe(period_seconds=5, failure_threshold=2), "GET /readyz; out of the endpoints within ten seconds"
    )


class TopologySpread(Group):
    """How evenly pods are spread. null: not at all."""

    hostname: Spread | None = value("ScheduleAnyway", "over nodes: as far as there is room")
    zone: Spread | None = value("ScheduleAnyway", "over zones: as far as there is room")
