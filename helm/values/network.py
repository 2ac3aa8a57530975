"""Network access to and from the service."""

from typing import Annotated, Literal

from pydantic import Field

from helm.values.base import AsInKubernetes, Group, Name, Port, Texts, value

# As in TAUGATE_ALLOWED_HOSTS (docs/access.md), without a port.
HostName = Annotated[str, Field(pattern=r"^(\*|(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)$")]


class Listen(Group):
    """The address at which the service listens in its pod, on port 8000."""

    host: str = value("0.0.0.0", "every IPv4 address of the pod; `::` in an IPv6 cluster", min_length=1)  # noqa: S104
    allowed_hosts: list[HostName] = value(
        [],
        "further host names that requests may use, such as a name forwarded by a gateway, `*.example.org`, or `*` for "
        "any; localhost, IP addresses, and the names of the Service and of the Ingress are always allowed",
    )


class Service(Group):
    """The Service in front of the pods."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = value(
        "ClusterIP", "reachable only within the cluster; TLS is for an Ingress"
    )
    port: Port = value(80, "the default of HTTP")
    node_port: Port | None = value(
        None, "port of the nodes, for NodePort and LoadBalancer; null: the cluster picks one"
    )
    spec: AsInKubernetes = value({}, "further fields, such as loadBalancerClass and loadBalancerSourceRanges")
    annotations: Texts = value({}, "annotations, such as those of a cloud's load balancer")


class IngressPath(Group):
    """A path of a host. Do not expose the operators' paths, /metrics and /admin/."""

    path: str = Field(description="path of the service, such as /search or /feedback", pattern="^/")
    path_type: Literal["Prefix", "Exact", "ImplementationSpecific"] = value("Prefix", "/search with /search/batch")


class IngressHost(Group):
    """A host and its paths to the service."""

    host: str = Field(description="its name", min_length=1)
    paths: list[IngressPath] = Field(description="paths that callers need: /search and /feedback", min_length=1)


class IngressTls(Group):
    """A certificate and its hosts."""

    secret_name: Name = Field(description="Secret with the certificate")
    hosts: list[str] = Field(description="its hosts", min_length=1)


class Ingress(Group):
    """An Ingress, which ends TLS. Behind it, API keys travel unencrypted."""

    class_name: Name | None = value(None, "null: the cluster's default")
    annotations: Texts = value({}, "annotations for its controller, which must allow bodies of settings.max_body_bytes")
    hosts: list[IngressHost] = value([], "hosts and their paths; empty: no Ingress")
    tls: list[IngressTls] = value([], "certificates")


class NetworkPolicy(Group):
    """Limits connections to and from the service, with ports from the URLs. A network plugin has to enforce it."""

    enabled: bool = value(False, "off: a plugin that denies unknown traffic breaks an installation silently")
    ingress_from: list[AsInKubernetes] = value(
        [], "callers besides the pod of `helm test`, as `from` of a NetworkPolicy; include Prometheus; empty: all"
    )
    extra_egress: list[AsInKubernetes] = value(
        [],
        "further `egress` rules, for example for a model hub, or for the source of a role's credentials: "
        "169.254.169.254 or 169.254.170.23 on port 80, STS on port 443",
    )
