"""Redis: an existing one, or a simple one from the chart."""

import subprocess
from pathlib import Path

import pytest
import redis

from tests.helm.rendered import KEYS, at, plain, render, secrets
from tests.loopback import free_port
from tests.prometheus_process import until

OWN = at("redis", {"enabled": True, "passwordSecret": "ours"})


def test_no_redis_by_default() -> None:
    rendered = render(KEYS)
    assert len(rendered.of("Deployment")) == len(rendered.of("Service")) == 1
    assert rendered.of("Secret") == []
    assert "env" not in rendered.container


def test_redis_url_is_stored_in_secret() -> None:
    rendered = render(KEYS, at("redis.url", "rediss://:secret@redis:6380/0"))
    assert rendered.one("Secret", "-redis-url")["stringData"] == {"url": "rediss://:secret@redis:6380/0"}
    assert secrets(rendered.container) == {"TAUGATE_REDIS_URL": ("shop-taugate-redis-url", "url")}
    assert len(rendered.of("Deployment")) == 1


def test_existing_redis_secret_is_used() -> None:
    rendered = render(KEYS, at("redis", {"existingSecret": "ours/redis-url"}))
    assert rendered.of("Secret") == []
    assert secrets(rendered.container) == {"TAUGATE_REDIS_URL": ("ours", "redis-url")}


def test_own_redis_is_bounded_without_disk() -> None:
    rendered = render(KEYS, OWN, at("redis.maxMemory", "64mb"))
    (container,) = rendered.one("Deployment", "-redis")["spec"]["template"]["spec"]["containers"]
    given = dict(zip(container["args"][1::2], container["args"][2::2], strict=True))
    assert given == {
        "--requirepass": "$(REDISCLI_AUTH)",
        "--maxmemory": "64mb",
        "--maxmemory-policy": "allkeys-lru",
        "--save": "",
        "--appendonly": "no",
        "--dir": "/tmp",
    }
    assert rendered.one("Deployment", "-redis")["spec"]["template"]["spec"]["volumes"] == [
        {"name": "tmp", "emptyDir": {}}
    ]


def test_redis_password_is_inserted_in_pod() -> None:
    rendered = render(KEYS, OWN)
    names = [variable["name"] for variable in rendered.container["env"]]
    # A variable may refer only to those before it.
    assert names.index("REDIS_PASSWORD") < names.index("TAUGATE_REDIS_URL")
    assert secrets(rendered.container) == {"REDIS_PASSWORD": ("ours", "password")}
    assert plain(rendered.container)["TAUGATE_REDIS_URL"] == "redis://:$(REDIS_PASSWORD)@shop-taugate-redis:6379/0"
    assert rendered.one("Service", "-redis")["spec"]["ports"][0]["port"] == 6379


def test_redis_stays_when_the_version_changes() -> None:
    pod = render(KEYS, OWN).one("Deployment", "-redis")["spec"]["template"]["metadata"]
    assert "app.kubernetes.io/version" not in pod["labels"]


def test_existing_redis_password_is_used() -> None:
    rendered = render(KEYS, at("redis", {"enabled": True, "passwordSecret": "ours/pass"}))
    assert rendered.of("Secret") == []
    (container,) = rendered.one("Deployment", "-redis")["spec"]["template"]["spec"]["containers"]
    assert secrets(container) == {"REDISCLI_AUTH": ("ours", "pass")}
    assert secrets(rendered.container) == {"REDIS_PASSWORD": ("ours", "pass")}


@pytest.mark.slow
def test_real_redis_accepts_arguments(tmp_path: Path) -> None:
    (container,) = render(KEYS, OWN).one("Deployment", "-redis")["spec"]["template"]["spec"]["containers"]
    command = [part.replace("$(REDISCLI_AUTH)", "0123456789abcdef") for part in container["args"]]
    command[command.index("--dir") + 1] = str(tmp_path)
    port = free_port()
    process = subprocess.Popen([*command, "--port", str(port), "--bind", "127.0.0.1"], stdout=subprocess.DEVNULL)
    try:
        client = redis.Redis(port=port, password="0123456789abcdef")
        until(lambda: _answers(client))
        kept = {name: client.config_get(name)[name] for name in ("maxmemory", "maxmemory-policy", "save", "appendonly")}
        assert kept == {"maxmemory": str(256 << 20), "maxmemory-policy": "allkeys-lru", "save": "", "appendonly": "no"}
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=port).ping()
    finally:
        process.kill()
        process.wait(timeout=20)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
