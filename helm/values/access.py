"""API keys for callers, and public keys for releases."""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, ConfigDict, Field

from helm.values.base import Group, Name, SecretEntry, value


class KeyEntry(Group):
    """A key in the format of `taugate key new`, with the names of docs/access.md."""

    model_config = ConfigDict(alias_generator=None)

    name: str = Field(description="name of the key in logs and metrics", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    sha256: str = Field(description="SHA-256 of the key, never the key itself", pattern=r"^[0-9a-f]{64}$")
    scopes: Annotated[list[Literal["search", "feedback", "metrics", "admin"]], Field(min_length=1)] = Field(
        description="what the key permits"
    )
    filter: Annotated[dict[str, Any], Field(min_length=1)] | None = value(
        None, "filter for the documents that this key may see, such as {tenant: shop}; omitted: all"
    )
    queries_per_second: float | None = value(None, "rate limit; null: settings.queries_per_second", gt=0)
    expires: AwareDatetime | None = value(None, "expiry; null: never")


class Keys(Group):
    """API keys (docs/access.md). Without keys the service needs settings.allow_unauthenticated to start."""

    existing_secret: SecretEntry | None = value(
        None,
        "SECRET or SECRET/ENTRY (entry `keys.json`) with a file of keys; a change takes effect within minutes, "
        "without a restart",
    )
    entries: list[KeyEntry] = value([], "hashed keys, from which the chart creates the Secret")
    variable: SecretEntry | None = value(
        None,
        "SECRET or SECRET/ENTRY (entry `keys.json`) with keys for TAUGATE_KEYS, which the service reads only at start",
    )


class TrustedKeys(Group):
    """Public keys (docs/releases.md): only releases that one of them signed are loaded."""

    existing_secret: Name | None = value(None, "Secret whose entries *.pem are public keys")
