"""The engine and the endpoints of releases whose vectors, documents or models are outside the release."""

from helm.values.base import Group, SecretEntry, value


class Engine(Group):
    """An engine that stores vectors and documents (docs/how-to/use-an-engine.md). The chart does not start one."""

    url: str | None = value(
        None,
        "URLs of its servers, with commas, without a password, such as postgresql://taugate@postgres/taugate or "
        "http://milvus:19530; only the image taugate/service-milvus has the Milvus client",
        pattern="^(https?|postgres(ql)?)://",
    )
    token_secret: SecretEntry | None = value(
        None, "SECRET or SECRET/ENTRY (entry `token`) with the token of Milvus, or the password of PostgreSQL"
    )


class EncoderEndpoint(Group):
    """An endpoint that encodes (docs/how-to/choose-an-encoder.md). With networkPolicy, extraEgress must allow it."""

    url: str | None = value(
        None, "base URL if it is not the one that the release names, or if there is a key", pattern="^https?://"
    )
    key_secret: SecretEntry | None = value(
        None, "SECRET or SECRET/ENTRY (entry `key`) with the key, which is sent to `url` only"
    )


class RerankEndpoint(Group):
    """An endpoint that reranks (docs/how-to/better-ranking.md). With networkPolicy, extraEgress must allow it."""

    url: str | None = value(None, "URL of the reranker, such as http://reranker:8080", pattern="^https?://")
    key_secret: SecretEntry | None = value(
        None, "SECRET or SECRET/ENTRY (entry `key`) with the key, which is sent to `url` only"
    )
