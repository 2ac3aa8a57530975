"""All values of the chart, in the order of values.yaml."""

from pydantic import Field

from helm.values.access import Keys, TrustedKeys
from helm.values.base import (
    Account,
    AsInKubernetes,
    Group,
    Image,
    Name,
    Resources,
    Texts,
    Toleration,
    Variables,
    group,
    value,
)
from helm.values.engine import EncoderEndpoint, Engine, RerankEndpoint
from helm.values.mcp import Mcp
from helm.values.monitoring import Metrics, Tests
from helm.values.network import Ingress, Listen, NetworkPolicy, Service
from helm.values.recalibration import Recalibration
from helm.values.redis import Redis
from helm.values.releases import QueryLog, Releases
from helm.values.scaling import Autoscaling, DisruptionBudget, Probes, Rollout, SpreadRule
from helm.values.settings import ServiceSettings


class ChartValues(Group):
    """Values of the chart taugate."""

    image: Image = value(
        Image(),
        "image of the service: taugate/service, with Milvus taugate/service-milvus, with a GPU taugate/service-gpu",
    )
    image_pull_secrets: list[Name] = value([], "Secrets for pulling images")
    common_labels: Texts = value({}, "labels of all objects and pods")
    replicas: int | None = value(
        2, "number of pods, so that one may fail; null: what autoscaling or another scaler sets", ge=0
    )

    keys: Keys = group(Keys())
    releases: Releases = group(Releases())
    trusted_keys: TrustedKeys = group(TrustedKeys())
    settings: ServiceSettings = value(  # type: ignore[valid-type]  # created at import
        {},
        "settings of the service by their names in docs/settings.md: {max_k: 20, workers: '2,encoder_threads=4'} sets "
        "TAUGATE_MAX_K and TAUGATE_WORKERS; unset or null: the service's default",
    )
    env: Variables = value(
        {}, "further environment variables of the service, or {valueFrom: …}; TAUGATE_* variables have their own values"
    )
    extra_env_from: list[AsInKubernetes] = value([], "further `envFrom` of the service and of the calibration")
    extra_volumes: list[AsInKubernetes] = value(
        [], "further volumes of the service and of the calibration, such as the certificate of a private authority"
    )
    extra_volume_mounts: list[AsInKubernetes] = value([], "where their containers mount these")
    init_containers: list[AsInKubernetes] = value([], "containers that run before the service starts")
    sidecars: list[AsInKubernetes] = value([], "containers beside the service")
    query_log: QueryLog = group(QueryLog())
    redis: Redis = group(Redis())
    engine: Engine = group(Engine())
    encoder_endpoint: EncoderEndpoint = group(EncoderEndpoint())
    rerank_endpoint: RerankEndpoint = group(RerankEndpoint())

    recalibration: Recalibration = group(Recalibration())

    mcp: Mcp = group(Mcp())

    listen: Listen = group(Listen())
    service: Service = group(Service())
    ingress: Ingress = group(Ingress())
    http_route: AsInKubernetes = value(
        {},
        "spec of an HTTPRoute of the Gateway API, such as {parentRefs: [{name: public}], hostnames: "
        "[search.example.com]}; without rules it routes /search and /feedback; empty: none",
    )
    network_policy: NetworkPolicy = group(NetworkPolicy())
    service_account: Account = value(Account(), "service account of the service's pods")

    autoscaling: Autoscaling = group(Autoscaling())
    pod_disruption_budget: DisruptionBudget = group(DisruptionBudget())
    rollout: Rollout = group(Rollout())
    probes: Probes = value({}, Probes.__doc__ or "")
    resources: Resources = value(
        Resources(requests={"cpu": "2", "memory": "640Mi"}, limits={"cpu": "2", "memory": "1Gi"}),
        "the CPU limit sets the number of encoder threads; benchmarks/results/serving.md measured 361 queries/s on two "
        "processors; memory was 392 MB under load, 606 MB with 10,000 connections, and a swap holds two releases",
    )
    topology_spread: SpreadRule | None = value(
        "ScheduleAnyway", "how pods are spread over nodes and over zones; ScheduleAnyway: if possible; null: no rule"
    )
    node_selector: Texts = value({}, "labels of the nodes that the service may run on")
    tolerations: list[Toleration] = value([], "taints of nodes that the service tolerates")
    affinity: AsInKubernetes = value({}, "affinity of the service's pods, as in Kubernetes")
    pod_spec: AsInKubernetes = value(
        {}, "further fields of the service's pods, as in Kubernetes, such as priorityClassName or runtimeClassName"
    )
    pod_security_context: AsInKubernetes = value(
        {},
        "of all pods; {runAsUser: 10001, runAsGroup: 10001, fsGroup: 10001}, on top of the restricted Pod "
        "Security Standard; the images run as any user, so null removes a "
        "number that a cluster such as OpenShift assigns; fsGroup gives its group a volume that one node mounts, while "
        "most drivers of ReadWriteMany leave it as it is",
    )
    container_security_context: AsInKubernetes = value(
        {},
        "of all containers, in place of the restricted Pod Security Standard's fields and of a read-only root file "
        "system",
    )
    pod_annotations: Texts = value({}, "annotations of the service's pods")
    pod_labels: Texts = value({}, "labels of the service's pods")

    metrics: Metrics = group(Metrics())
    tests: Tests = group(Tests())
    name_override: Name | None = value(None, "replaces the chart's name in object names")
    fullname_override: Name | None = value(None, "replaces the common part of all object names")
    global_: AsInKubernetes = Field(
        default={}, alias="global", description="Helm's global values, for charts that contain this one"
    )
