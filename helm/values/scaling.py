"""The number of pods, and how they are replaced and spread."""

from typing import Literal

from helm.values.base import AsInKubernetes, Group, value

SpreadRule = Literal["ScheduleAnyway", "DoNotSchedule"]


class Autoscaling(Group):
    """A HorizontalPodAutoscaler from `replicas` pods on, by CPU or by queries in progress."""

    enabled: bool = value(False, "off: it needs metrics-server")
    max_replicas: int = value(
        8, "eight pods answer some 2,900 queries/s: 361/s on two processors each (benchmarks/results/serving.md)", ge=1
    )
    target_cpu_percent: int = value(
        70,
        "percent of resources.requests.cpu: at 80 % of the highest float32 throughput, the p99 was below 0.2 s; new "
        "pods start within seconds",
        ge=1,
        le=100,
    )
    target_queue_depth: int | None = value(
        None,
        "queries in progress per pod (taugate_queue_depth) in place of the CPU, such as 16: the p99 was 92 ms "
        "with 16 of "
        "them, 297 ms with 64; it needs an adapter such as prometheus-adapter",
        ge=1,
    )
    behavior: AsInKubernetes = value({}, "how fast it scales, as in Kubernetes; empty: Kubernetes' own rules")


class DisruptionBudget(Group):
    """A PodDisruptionBudget, which limits how many pods may be missing while nodes are drained."""

    max_unavailable: int | None = value(
        1, "one at a time; with minAvailable a single pod could block a drain forever; null: no budget", ge=1
    )


class Rollout(Group):
    """How new pods replace old ones. No pod is missing (maxUnavailable 0), one is extra (maxSurge 1)."""

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
