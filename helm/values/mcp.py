"""The MCP server in front of the service."""

from pydantic import Field

from helm.values.base import AsInKubernetes, Image, Port, Resources, Scheduled, SecretEntry, value
from helm.values.network import HostName


class Mcp(Scheduled):
    """An MCP server for agents (docs/how-to/clients.md#agents). Any client that reaches it searches with its key."""

    enabled: bool = value(False, "off: it allows searches without a key")
    image: Image = value(Image(repository="taugate/mcp"), "image of the MCP server")
    replicas: int = value(1, "number of pods; they are stateless", ge=1)
    key: str | None = value(
        None, "its API key with the scopes search and feedback, as printed by `taugate key new`", pattern=r"^[!-~]+$"
    )
    key_secret: SecretEntry = value(SecretEntry(), "a Secret with that key, instead of mcp.key")
    port: Port = value(80, "port of its Service; its path is /mcp")
    allowed_hosts: list[HostName] = Field(
        default=[],
        description="further host names that agents may use, such as that of a gateway; localhost and the names of its "
        "Service are always allowed",
    )
    ingress_from: list[AsInKubernetes] = value(
        [], "with networkPolicy.enabled: which agents reach it, as `from` of a NetworkPolicy; empty: all"
    )
    resources: Resources = value(
        Resources(requests={"cpu": "100m", "memory": "96Mi"}, limits={"memory": "192Mi"}),
        "it only forwards requests; 80 MB when idle",
    )
