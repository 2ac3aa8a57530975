"""The engine of releases whose vectors and documents are stored outside the release."""

from helm.values.base import Group, SecretEntry, value


class Engine(Group):
    """An engine that stores vectors and documents (docs/how-to/use-an-engine.md). The chart does not start one."""

    url: str | None = value(
        None,
        "URLs of its servers, with commas, without a password, such as postgresql://taugate@postgres/taugate or "
        "http://milvus:19530; only the image taugate/service-milvus has the Milvus client",
        pattern="^(https?|postgres(ql)?)://",
    )
    token_secret: SecretEntry = value(
        SecretEntry(key="token"), "a Secret with the token of Milvus, or the password of PostgreSQL"
    )
