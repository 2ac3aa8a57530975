"""Every setting of the service can be set by a value, and reaches the service."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from helm.values.settings import OWNED, ServiceSettings
from taugate.service.settings import VARIABLES, Settings
from tests.helm.rendered import KEYS, Rendered, Values, at, merged, render, secrets

URL = {"releases": {"url": "s3://bucket/team", "volume": {"enabled": False}}}
SERVICE = "shop-taugate,shop-taugate.team,shop-taugate.team.svc,shop-taugate.team.svc.cluster.local"
PEM = "-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----\n"

# Values of settings that have a value of their own name, none of them the default.
PLAIN: Values = {
    "playground": "on",
    "precision": "int8",
    "workers": 3,
    "encoder_threads": 5,
    "search_threads": 2,
    "max_k": 7,
    "max_batch": 128,
    "max_query_chars": 4096,
    "max_body_bytes": 131_072,
    "max_batch_bytes": 67_108_864,
    "dialects": "openai,dify",
    "queue_limit": 1024,
    "deadline_ms": 2500,
    "engine_timeout_ms": 1500,
    "encoder_timeout_ms": 900,
    "rerank_deadline_ms": 700,
    "cache_bytes": 1_073_741_824,
    "redis_timeout_ms": 25,
    "redis_ttl_seconds": 600,
    "drift": False,
    "drift_window_queries": 250_000,
    "drift_window_seconds": 0.5,
    "drift_smallest_effect": 0.05,
    "drift_average_run_length": 1e12,
    "drift_block": 400,
    "drift_baseline": "/queries/baseline.json",
    "canary_seconds": 60.5,
    "feedback_seconds": 7200,
    "explore_share": 0.05,
    "query_log_texts": True,
    "query_log_days": 30.5,
    "reload_seconds": 60,
    "shadow_share": 0,
    "allow_unauthenticated": True,
    "queries_per_second": 0.25,
    "max_connections": 20_000,
    "receive_seconds": 2.5,
    "keep_alive_seconds": 620.5,
    "max_header_bytes": 65_536,
    "drain_seconds": 30,
    "shutdown_seconds": 45,
    "otlp_endpoint": "http://collector:4318",
    "log_level": "warning",
    "telemetry": True,
}
READ = PLAIN | {  # what the service then has
    "drift_baseline": Path("/queries/baseline.json")
}
# What other values give, and what the service then has.
GIVEN: dict[str, tuple[Values, Any]] = {
    "releases": (URL, "s3://bucket/team"),
    "releases_copy": (merged(URL, at("releases.copyPath", "/cache/mine")), Path("/cache/mine")),
    "trusted_keys": (at("trustedKeys.pem", PEM), Path("/etc/taugate/trusted")),
    "host": (at("listen.host", "::"), "::"),
    "port": (at("listen.port", 9000), 9000),
    "allowed_hosts": (at("listen.allowedHosts", ["a", "*"]), f"localhost,{SERVICE},a,*"),
    "engine_url": (at("engine.url", "postgresql://postgres/taugate"), SecretStr("postgresql://postgres/taugate")),
    "engine_token_file": (
        at("engine", {"url": "postgresql://postgres", "tokenSecret": {"existingSecret": "postgres", "key": "secret"}}),
        Path("/etc/taugate/engine/secret"),
    ),
    "encoder_url": (at("encoderEndpoint.url", "https://models.example/v1"), "https://models.example/v1"),
    "encoder_key_file": (
        at("encoderEndpoint", {"url": "https://models.example", "keySecret": {"existingSecret": "models"}}),
        Path("/etc/taugate/encoder/key"),
    ),
    "rerank_url": (at("rerankEndpoint.url", "https://reranker.example"), "https://reranker.example"),
    "rerank_key_file": (
        at("rerankEndpoint", {"url": "https://reranker.example", "keySecret": {"existingSecret": "rerankers"}}),
        Path("/etc/taugate/rerank/key"),
    ),
    "redis_url": (at("redis.url", "redis://redis:6379/2"), SecretStr("redis://redis:6379/2")),
    "query_log": (at("queryLog", {"enabled": True, "path": "/queries/asked.jsonl"}), Path("/queries/asked.jsonl")),
    "keys_file": (at("keys.file", "mine.json"), Path("/etc/taugate/keys/mine.json")),
    "keys": (at("keys.variable.existingSecret", "variable"), SecretStr("of variable keys.json")),
}


def test_every_setting_is_reached() -> None:
    """One that is new has to be put into a table above, and for that into the chart."""
    assert set(PLAIN) | set(GIVEN) == set(VARIABLES)
    assert set(PLAIN) == {name for name, field in ServiceSettings.model_fields.items() if not field.deprecated}
    assert set(GIVEN) == set(OWNED)


def read(rendered: Rendered, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings as the service in the pod reads them; what a Secret of others holds is named after it."""
    made = {item["metadata"]["name"]: item["stringData"] for item in rendered.of("Secret")}
    variables = dict(rendered.environment)
    for name, (secret, key) in secrets(rendered.container).items():
        variables[name] = made.get(secret, {}).get(key, f"of {secret} {key}")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return Settings()


@pytest.mark.parametrize("name", PLAIN)
def test_setting_is_rendered_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PLAIN[name] != VARIABLES[name].info.default
    needed = {"max_batch": {"queue_limit": 128}}.get(name, {})
    rendered = render(KEYS, at("settings", {name: PLAIN[name], **needed}))
    assert read(rendered, monkeypatch).by_variable()[name] == READ[name]


def test_automatic_drift_block_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = render(KEYS, at("settings.drift_block", "auto"))
    assert read(rendered, monkeypatch).drift.block == "auto"


@pytest.mark.parametrize("name", GIVEN)
def test_dedicated_value_sets_setting(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values, expected = GIVEN[name]
    assert read(render(KEYS, values), monkeypatch).by_variable()[name] == expected


def test_unset_settings_are_not_rendered() -> None:
    assert set(render(KEYS).one("ConfigMap")["data"]) == {
        "TAUGATE_RELEASES", "TAUGATE_HOST", "TAUGATE_PORT", "TAUGATE_ALLOWED_HOSTS", "TAUGATE_KEYS_FILE"
    }  # fmt: skip


def test_all_settings_render_together(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(render(KEYS, {"settings": PLAIN}), monkeypatch).by_variable()
    assert {name: settings[name] for name in PLAIN} == READ


OLDER = {name: older for name in PLAIN for older in VARIABLES[name].names[1:]}


@pytest.mark.parametrize(("name", "older"), OLDER.items())
def test_older_setting_name_is_accepted(name: str, older: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = render(KEYS, at(f"settings.{older}", PLAIN[name]))
    assert read(rendered, monkeypatch).by_variable()[name] == READ[name]


def test_extra_variables_are_rendered() -> None:
    assert render(KEYS, at("env", {"OMP_NUM_THREADS": "1"})).environment["OMP_NUM_THREADS"] == "1"
