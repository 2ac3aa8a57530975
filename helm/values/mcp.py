"""The MCP server in front of the service."""

from pydantic import Field

from helm.values.base import AsInKubernetes, ImageName, Scheduled, SecretEntry, value
from helm.values.network import HostName


class Mcp(Scheduled):
    """An MCP server for agents (docs/how-to/clients.md#agents). Any client that reaches it searches with its key."""

    enabled: bool = value(False, "off: it allows searches without a key")
    image: ImageName = value("taugate/mcp", "image of the MCP server; without tag or digest, of the chart's appVersion")
    replicas: int = value(1, "number of pods; they are stateless", ge=1)
    key_secret: SecretEntry | None = value(
        None, "SECRET or SECRET/ENTRY (entry `key`) with its API key, which has the scopes search and feedback"
    )
    allowed_hosts: list[HostName] = Field(
        default=[],
        description="further host names that agents may use, such as that of a gateway; localhost and the names of its "
        "Service are always allowed",
    )
    ingress_from: list[AsInKubernetes] = value(
        [], "with networkPolicy.enabled: which agents reach it, as `from` of a NetworkPolicy; empty: all"
    )
    resources: AsInKubernetes = value(
        {},
        "requests and limits; {requests: {cpu: 100m, memory: 96Mi}, limits: {memory: 192Mi}}: it only forwards "
        "requests, "
        "and takes 80 MB when idle",
    )
