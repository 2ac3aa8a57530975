"""Who may ask, and whose releases are served: API keys and public keys."""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, ConfigDict, Field

from helm.values.base import Group, Name, SecretEntry, value


class KeyEntry(Group):
    """A key as `taugate key new` writes it, under the names of docs/access.md."""

    model_config = ConfigDict(alias_generator=None)

    name: str = Field(description="how logs and metrics call the key", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    sha256: str = Field(description="SHA-256 of the key, never the key itself", pattern=r"^[0-9a-f]{64}$")
    scopes: Annotated[list[Literal["search", "feedback", "metrics", "admin"]], Field(min_length=1)] = Field(
        description="what the key opens"
    )
    filter: Annotated[dict[str, Any], Field(min_length=1)] | None = value(
        None, "the documents that exist for this key, such as {tenant: shop}; left out: all"
    )
    queries_per_second: float | None = value(None, "its rate; null: settings.queries_per_second", gt=0)
    expires: AwareDatetime | None = value(None, "when it ends; null: never")


class Keys(Group):
    """API keys (docs/access.md). Without keys the service needs settings.allow_unauthenticated to start."""

    existing_secret: Name | None = value(
        None, "Secret with a file of keys; a change takes effect within minutes, without a restart"
    )
    file: str = value("keys.json", "name of the file in that Secret", min_length=1)
    entries: list[KeyEntry] = value([], "hashed keys; the chart makes the Secret from them")
    variable: SecretEntry = value(
        SecretEntry(key="keys.json"), "a Secret with keys for TAUGATE_KEYS, which the service reads only at start"
    )


class TrustedKeys(Group):
    """Public keys (docs/storage.md): only releases that one of them signed are loaded. Give one source at most."""

    pem: str | None = value(None, "one or more Ed25519 public keys, in PEM form", pattern="BEGIN PUBLIC KEY")
    existing_config_map: Name | None = value(None, "ConfigMap whose entries *.pem are public keys")
    existing_secret: Name | None = value(None, "Secret whose entries *.pem are public keys")
