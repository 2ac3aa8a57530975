"""Every setting of the service can be set by a value, and reaches the service."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from helm.values.settings import OWNED, ServiceSettings
from taugate.service.settings import VARIABLES, Settings
from tests.helm.rendered import KEYS, Rendered, Values, at, render, secrets

URL = {"releases": {"url": "s3://bucket/team"}}
SERVICE = "shop-taugate,shop-taugate.team,shop-taugate.team.svc,shop-taugate.team.svc.cluster.local"

LOGGED = at("queryLog", {"enabled": True})
# Values of settings that have a value of their own name, none of them the default; texts have options.
PLAIN: Values = {
    "playground": "on",
    "precision": "int8",
    "workers": "3,encoder_threads=5,search_threads=2",
    "max_k": 7,
    "max_batch": "128,body_bytes=67108864",
    "max_query_chars": "4096,body_bytes=131072",
    "dialects": "openai,dify",
    "queue_limit": 1024,
    "deadline_ms": "2500,engine_ms=1500,encoder_ms=900",
    "rerank_deadline_ms": 700,
    "cache_bytes": "1073741824,redis_timeout_ms=25,redis_ttl_seconds=600",
    "drift": "false,window_queries=250000,window_seconds=0.5,smallest_effect=0.05,average_run_length=1e12,block=400,"
    "canary_seconds=60.5,feedback_seconds=7200",
    "drift_baseline": "/queries/baseline.json",
    "explore_share": 0.05,
    "query_log_texts": "true,days=30.5",
    "judge_share": 0.25,
    "judge_url": "http://models:8080/v1",
    "judge_model": "judge",
    "judge_key_file": "/secrets/judge",
    "judge_calls_per_day": 200,
    "reload_seconds": 60,
    "shadow_share": 0,
    "allow_unauthenticated": True,
    "queries_per_second": 0.25,
    "max_connections": "20000,receive_seconds=2.5,header_bytes=65536",
    "keep_alive_seconds": 620.5,
    "drain_seconds": "30,shutdown_seconds=45",
    "otlp_endpoint": "http://collector:4318",
    "log_level": "warning",
    "telemetry": True,
}
# The same by former names, and numbers as numbers.
FORMER: Values = {
    "workers": 3,
    "encoder_threads": 5,
    "search_threads": 2,
    "max_batch": 128,
    "max_batch_bytes": 67_108_864,
    "max_query_chars": 4096,
    "max_body_bytes": 131_072,
    "deadline_ms": 2500,
    "engine_timeout_ms": 1500,
    "encoder_timeout_ms": 900,
    "cache_bytes": 1_073_741_824,
    "redis_timeout_ms": 25,
    "redis_ttl_seconds": 600,
    "drift": False,
    "drift_window_queries": 250_000,
    "drift_window_seconds": 0.5,
    "drift_smallest_effect": 0.05,
    "drift_seldom": 1e12,
    "drift_block": 400,
    "canary_seconds": 60.5,
    "feedback_seconds": 7200,
    "query_log_texts": True,
    "query_log_days": 30.5,
    "allow_anyone": True,
    "max_connections": 20_000,
    "receive_seconds": 2.5,
    "max_header_bytes": 65_536,
    "drain_seconds": 30,
    "shutdown_seconds": 45,
}
# A chained query log has no texts, so its settings are rendered without those of PLAIN.
CHAINED = {"query_log_chain": True, "decision_log_key_file": "/secrets/decisions.pem"}
# What other values give, and what the service then has.
GIVEN: dict[str, tuple[Values, Any]] = {
    "releases": (URL, "s3://bucket/team"),
    "trusted_keys": (at("trustedKeys.existingSecret", "ours"), Path("/etc/taugate/trusted")),
    "host": (at("listen.host", "::"), "::"),
    "port": ({}, 8000),
    "allowed_hosts": (at("listen.allowedHosts", ["a", "*"]), f"localhost,{SERVICE},a,*"),
    "engine_url": (at("engine.url", "postgresql://postgres/taugate"), SecretStr("postgresql://postgres/taugate")),
    "engine_token_file": (
        at("engine", {"url": "postgresql://postgres", "tokenSecret": "postgres/secret"}),
        Path("/etc/taugate/engine/secret"),
    ),
    "encoder_url": (at("encoderEndpoint.url", "https://models.example/v1"), "https://models.example/v1"),
    "rerank_url": (at("rerankEndpoint.url", "https://reranker.example"), "https://reranker.example"),
    "redis_url": (at("redis.url", "redis://redis:6379/2"), SecretStr("redis://redis:6379/2")),
    "query_log": (at("queryLog.enabled", True), Path("/queries/queries.jsonl")),
    "keys_file": (at("keys.existingSecret", "ours/mine.json"), Path("/etc/taugate/keys/mine.json")),
    "keys": (at("keys.variable", "variable"), SecretStr("of variable keys.json")),
}


def test_every_setting_is_reached() -> None:
    """One that is new has to be put into a table above, and for that into the chart."""
    fields = ServiceSettings.model_fields.items()
    assert {*PLAIN, *CHAINED, *GIVEN} == set(VARIABLES)
    assert {*PLAIN, *CHAINED} == {name for name, field in fields if not field.deprecated}
    assert {name for name, field in fields if field.deprecated} - set(FORMER) == {"drift_average_run_length"}
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


def test_settings_reach_the_service_by_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as current:
        settings = read(render(KEYS, LOGGED, {"settings": PLAIN}), current).by_variable()
    defaults = {**Settings(releases="r").by_variable(), "drift_baseline": None}
    assert [name for name in PLAIN if settings[name] == defaults[name]] == []
    rest = {name: PLAIN[name] for name in set(PLAIN) - set(FORMER) - {"allow_unauthenticated"}}
    assert read(render(KEYS, LOGGED, {"settings": rest | FORMER}), monkeypatch).by_variable() == settings
    assert (settings["workers"], settings["search_threads"], settings["shutdown_seconds"]) == (3, 2, 45)
    assert (settings["cache_bytes"], settings["drift_block"], settings["drift"]) == (1_073_741_824, 400, False)


def test_settings_of_a_chained_log_reach_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(render(KEYS, LOGGED, {"settings": CHAINED}), monkeypatch).by_variable()
    assert settings["query_log_chain"] is True
    assert settings["decision_log_key_file"] == Path("/secrets/decisions.pem")


@pytest.mark.parametrize("name", ["encoder", "rerank"])
def test_key_file_of_endpoint_follows_its_url(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = at(f"{name}Endpoint", {"url": "https://models.example", "keySecret": "models"})
    settings = read(render(KEYS, values), monkeypatch).by_variable()
    assert (settings[f"{name}_url"], settings[f"{name}_key_file"]) == (
        "https://models.example",
        Path(f"/etc/taugate/{name}/key"),
    )


@pytest.mark.parametrize("name", GIVEN)
def test_dedicated_value_sets_setting(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values, expected = GIVEN[name]
    assert read(render(KEYS, values), monkeypatch).by_variable()[name] == expected


def test_unset_settings_are_not_rendered() -> None:
    assert set(render(KEYS).one("ConfigMap")["data"]) == {
        "TAUGATE_RELEASES", "TAUGATE_HOST", "TAUGATE_PORT", "TAUGATE_ALLOWED_HOSTS", "TAUGATE_KEYS_FILE"
    }  # fmt: skip


def test_extra_variables_are_rendered() -> None:
    assert render(KEYS, at("env", {"OMP_NUM_THREADS": "1"})).environment["OMP_NUM_THREADS"] == "1"
