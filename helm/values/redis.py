"""The Redis that replicas share: an existing one, or a simple one from the chart."""

from helm.values.base import AsInKubernetes, ImageName, Scheduled, SecretEntry, value


class Redis(Scheduled):
    """Cache and rates that replicas share (docs/operations.md, docs/access.md). Without it, each has its own."""

    url: str | None = value(
        None, "an existing Redis, such as redis://:password@redis:6379/0", pattern="^(rediss?|unix)://"
    )
    existing_secret: SecretEntry | None = value(
        None, "SECRET or SECRET/ENTRY (entry `url`) with the URL, instead of redis.url"
    )
    enabled: bool = value(False, "true: the chart starts a simple Redis: one pod, bounded memory, nothing on disk")
    image: ImageName = value("redis:7.2.11-bookworm", "image of the chart's own Redis, 6.2 or later")
    password_secret: SecretEntry | None = value(
        None,
        "SECRET or SECRET/ENTRY (entry `password`) with its password: at least 16 characters that need no "
        "escaping in a URL, such as from `openssl rand -hex 24`",
    )
    max_memory: str = value(
        "256mb",
        "limit beyond which least recently used entries are evicted; four times the default of a process",
        pattern="^[0-9]+(mb|gb)$",
    )
    resources: AsInKubernetes = value(
        {},
        "requests and limits of the chart's own Redis; {requests: {cpu: 100m, memory: 320Mi}, limits: {memory: "
        "384Mi}}: "
        "its memory, and half as much again for connections and fragmentation",
    )
