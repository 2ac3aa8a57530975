"""The engine of releases whose vectors and documents are outside them."""

from helm.values.base import Group, SecretEntry, value


class Engine(Group):
    """An engine that holds vectors and documents (docs/how-to/use-an-engine.md). The chart starts none."""

    url: str | None = value(
        None,
        "URLs of its servers, by commas, without a password, such as postgresql://taugate@postgres/taugate or "
        "http://milvus:19530; only the image taugate/service-milvus has the client of Milvus",
        pattern="^(https?|postgres(ql)?)://",
    )
    token_secret: SecretEntry = value(
        SecretEntry(key="token"), "a Secret with the token of Milvus, or the password of PostgreSQL"
    )
