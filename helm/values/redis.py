"""The Redis that replicas share: one that is there, or a simple one of the chart's own."""

from helm.values.base import Group, Image, Name, Resources, SecretEntry, value


class Redis(Group):
    """Cache and rates that replicas share (docs/serving.md, docs/access.md). Without it each process is for itself."""

    url: str | None = value(
        None, "a Redis that is there, such as redis://:password@redis:6379/0", pattern="^(rediss?|unix)://"
    )
    existing_secret: Name | None = value(None, "Secret that holds the URL, in the place of redis.url")
    key: str = value("url", "the entry of that Secret", min_length=1)
    enabled: bool = value(False, "a simple one of the chart's own: one pod, bounded memory, nothing kept on a disk")
    image: Image = value(
        Image(repository="redis", tag="7.2.7-bookworm"), "image of the chart's own Redis; any since 6.2 will do"
    )
    password: str | None = value(
        None,
        "password of the chart's own Redis, at least 16 characters that a URL may hold, as of `openssl rand -hex 24`",
        pattern=r"^[A-Za-z0-9._~-]{16,}$",
    )
    password_secret: SecretEntry = value(
        SecretEntry(key="password"), "a Secret with that password, in the place of redis.password"
    )
    max_memory: str = value(
        "256mb",
        "beyond it what was used least recently goes; four times what a process keeps by default",
        pattern="^[0-9]+(mb|gb)$",
    )
    resources: Resources = value(
        Resources(requests={"cpu": "100m", "memory": "320Mi"}, limits={"memory": "384Mi"}),
        "resources of the chart's own Redis: its memory and half as much again, for connections and fragments",
    )
