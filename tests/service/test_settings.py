"""Settings: variables reach their groups, older names work, and another process reads the same values."""

import json
import os
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from taugate.errors import InputError
from taugate.service.settings import VARIABLES, Settings, read_settings
from taugate.service.settings.settings import FORMER_NAMES, unknown_variables
from tests.service.process.test_process import refusal
from tests.service_process import ServiceProcess

RENAMED = [
    ("drift_average_run_length", "TAUGATE_DRIFT_SELDOM", "1e12", 1e12),
    ("allow_unauthenticated", "TAUGATE_ALLOW_ANYONE", "true", True),
]
# The same values as options and by former names.
OPTIONS = {
    "TAUGATE_WORKERS": "3,encoder_threads=5",
    "TAUGATE_DRIFT": "block=auto,canary_seconds=60",
    "TAUGATE_DRAIN_SECONDS": "0, shutdown_seconds=7",
    "TAUGATE_ENCODER_URL": "http://h/v1?a=b,c,key_file=/run/key",
    "TAUGATE_QUERY_LOG_TEXTS": "true,days=30",
}
FORMER = {
    "TAUGATE_WORKERS": "3",
    "TAUGATE_ENCODER_THREADS": "5",
    "TAUGATE_DRIFT_BLOCK": "auto",
    "taugate_canary_seconds": "60",
    "TAUGATE_DRAIN_SECONDS": "0",
    "TAUGATE_SHUTDOWN_SECONDS": "7",
    "TAUGATE_ENCODER_URL": "http://h/v1?a=b,c",
    "TAUGATE_ENCODER_KEY_FILE": "/run/key",
    "TAUGATE_QUERY_LOG_TEXTS": "true",
    "TAUGATE_QUERY_LOG_DAYS": "30",
}
# Every variable of version 0.1.0; none may stop working.
NAMES = re.findall(
    r"\w+",
    """
    RELEASES RELEASES_COPY TRUSTED_KEYS HOST PORT PRECISION WORKERS ENCODER_THREADS SEARCH_THREADS MAX_K MAX_BATCH
    MAX_QUERY_CHARS MAX_BODY_BYTES MAX_BATCH_BYTES QUEUE_LIMIT DEADLINE_MS CACHE_BYTES REDIS_URL REDIS_TIMEOUT_MS
    REDIS_TTL_SECONDS DRIFT DRIFT_WINDOW_QUERIES DRIFT_WINDOW_SECONDS DRIFT_SMALLEST_EFFECT DRIFT_SELDOM DRIFT_BLOCK
    DRIFT_BASELINE CANARY_SECONDS FEEDBACK_SECONDS QUERY_LOG QUERY_LOG_TEXTS RELOAD_SECONDS SHADOW_SHARE KEYS_FILE KEYS
    ALLOW_ANYONE QUERIES_PER_SECOND ALLOWED_HOSTS MAX_CONNECTIONS RECEIVE_SECONDS MAX_HEADER_BYTES SHUTDOWN_SECONDS
    LOG_LEVEL OTLP_ENDPOINT
""",
)


def test_variable_names_are_complete() -> None:
    current = {name.upper() for name in VARIABLES}
    assert len(current) <= 48
    known = current | {name.removeprefix("TAUGATE_") for name in FORMER_NAMES}
    assert known - set(NAMES) == {
        "ALLOW_UNAUTHENTICATED",
        "DIALECTS",
        "DECISION_LOG_KEY_FILE",
        "DRAIN_SECONDS",
        "DRIFT_AVERAGE_RUN_LENGTH",
        "ENCODER_KEY_FILE",
        "ENCODER_TIMEOUT_MS",
        "ENCODER_URL",
        "ENGINE_TIMEOUT_MS",
        "ENGINE_TOKEN_FILE",
        "ENGINE_URL",
        "EXPLORE_SHARE",
        "KEEP_ALIVE_SECONDS",
        "PLAYGROUND",
        "QUERY_LOG_CHAIN",
        "QUERY_LOG_DAYS",
        "RERANK_DEADLINE_MS",
        "JUDGE_CALLS_PER_DAY",
        "JUDGE_KEY_FILE",
        "JUDGE_MODEL",
        "JUDGE_SHARE",
        "JUDGE_URL",
        "RERANK_KEY_FILE",
        "RERANK_URL",
        "TELEMETRY",
    }
    assert set(NAMES) <= known


def test_variables_reach_groups_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUGATE_DRIFT", "false")
    monkeypatch.setenv("taugate_cache_bytes", "0")
    monkeypatch.setenv("TAUGATE_CACHE", "/elsewhere")  # of the calibration
    settings = Settings(releases="s3://bucket/team", max_k=7)
    assert (settings.drift.enabled, settings.cache.max_bytes, settings.requests.max_k) == (False, 0, 7)
    assert settings.releases.location == "s3://bucket/team"
    monkeypatch.setenv("TAUGATE_MAX_K", "9")
    assert Settings(releases="r", max_k=7).requests.max_k == 7, "what is given goes before the environment"
    assert Settings(releases="r").requests.max_k == 9


def test_options_equal_former_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for variables in (OPTIONS, FORMER):
        with monkeypatch.context() as environment:
            for name, text in variables.items():
                environment.setenv(name, text)
            found.append(Settings(releases="r"))
            assert Settings(releases="r", workers=2).compute.encoder_threads == 5, "a flag leaves the options"
    options, former = found
    assert options == former
    assert (options.compute.workers, options.drift.enabled, options.drift.block) == (3, True, "auto")
    assert (options.drift.canary_seconds, options.connections.shutdown_seconds) == (60, 7)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORKERS": "2,threads=4"}, "TAUGATE_WORKERS has no option 'threads'; it has encoder_threads, search_threads"),
        ({"WORKERS": "2,4"}, "TAUGATE_WORKERS=2,4: must be a valid integer"),
        ({"DRIFT": "block=5"}, "TAUGATE_DRIFT: block=5: must be greater than or equal to 25 or 'auto'"),
        (
            {"DRAIN_SECONDS": "9,shutdown_seconds=1", "SHUTDOWN_SECONDS": "2"},
            "shutdown_seconds is set twice, in TAUGATE_DRAIN_SECONDS and TAUGATE_SHUTDOWN_SECONDS; unset "
            "TAUGATE_SHUTDOWN_SECONDS",
        ),
    ],
)  # fmt: skip
def test_unusable_option_is_named(variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(f"TAUGATE_{name}", text)
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        read_settings(releases="r")


@pytest.mark.parametrize(("name", "older", "text", "value"), RENAMED)
def test_older_name_still_works(
    name: str, older: str, text: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(older, text)
    settings = Settings(releases="r")
    assert settings.by_variable()[name] == value
    logged = settings.for_log()
    assert logged[name] == logged[older.removeprefix("TAUGATE_").lower()] == value


@pytest.mark.parametrize(("name", "older", "text"), [row[:3] for row in RENAMED])
def test_old_and_new_name_are_refused(name: str, older: str, text: str, releases: Path) -> None:
    new = f"TAUGATE_{name.upper()}"
    message = refusal("--releases", str(releases), **{older: text, new: text})
    assert message == f"taugate: {new} and its older name {older} are both set; unset {older}"


def test_exported_settings_are_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUGATE_DRIFT_SELDOM", "1e12")
    monkeypatch.setenv("TAUGATE_MAX_K", "9")
    monkeypatch.setenv("taugate_port", "9000")
    settings = Settings(releases=Path("r"), keys="[]", drift_block="auto", workers=3, max_k=7)
    environment = dict(os.environ)
    settings.export(environment)
    for name in set(os.environ) - set(environment):
        monkeypatch.delenv(name)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    assert Settings() == settings
    assert settings.compute.workers == 3


@pytest.mark.parametrize(
    ("variable", "text", "allowed"),
    [
        ("MAX_K", "0", "greater than or equal to 1"),
        ("MAX_BATCH", "many", "a valid integer"),
        ("PORT", "99999", "less than or equal to 65535"),
        ("DRIFT", "maybe", "a valid boolean"),
        ("DRIFT_BLOCK", "5", "greater than or equal to 25 or 'auto'"),
        ("DRIFT_SELDOM", "0", "greater than 1"),
        ("SHADOW_SHARE", "2", "less than or equal to 1"),
        ("LOG_LEVEL", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("REDIS_TIMEOUT_MS", "soon" * 99, "a valid integer"),
    ],
)
def test_error_names_variable_and_values(
    variable: str, text: str, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"TAUGATE_{variable}", text)
    shown = text if len(text) < 60 else f"{text[:60]}…"
    with pytest.raises(InputError, match=f"^{re.escape(f'TAUGATE_{variable}={shown}: must be {allowed}')}$"):
        read_settings(releases="r")


def test_error_names_flag() -> None:
    with pytest.raises(InputError, match="^--workers=0: must be greater than or equal to 1$"):
        read_settings(releases="r", workers=0)
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Settings(releases="r", max_kk=5)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:6379",
        "http://h",
        "redis://h:port",
        "redis://h/one",
        "redis://h?pause=1",
        "redis://[::1",
        "unix://",
        "unix:///",
        "unix://run/redis.sock",
        "unix:///run/redis.sock?db=one",
    ],
)
def test_invalid_redis_url_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUGATE_REDIS_URL", url)
    with pytest.raises(InputError, match="^TAUGATE_REDIS_URL: must be redis://"):
        read_settings(releases="r")


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://me:p%2Fw@h:1/2",
        "rediss://h/0?ssl_cert_reqs=none",
        "unix:///s?db=1",
        "unix://:p%2Fw@/s",
        "unix://me:p@/run/redis.sock?db=2",
    ],
)
def test_valid_redis_url_is_accepted(url: str) -> None:
    redis_url = read_settings(releases="r", redis_url=url).cache.redis_url
    assert redis_url is not None
    assert redis_url.get_secret_value() == url


def test_error_hides_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUGATE_REDIS_URL", "redis://:hush/hush@h")
    with pytest.raises(InputError) as refused:
        read_settings(releases="r")
    assert "hush" not in str(refused.value)


def test_unknown_variable_suggests_nearest_setting() -> None:
    known = ["TAUGATE_MAX_K", "taugate_port", "TAUGATE_DRIFT_SELDOM", "TAUGATE_CACHE", "PATH"]
    of_kubernetes = ["TAUGATE_SERVICE_HOST", "TAUGATE_PORT_8000_TCP_ADDR"]
    assert unknown_variables(known + of_kubernetes) == {}
    assert unknown_variables(["TAUGATE_MAXK", "taugate_redis_uri", "TAUGATE_SOMETHING_ELSE"]) == {
        "TAUGATE_MAXK": "TAUGATE_MAX_K",
        "taugate_redis_uri": "TAUGATE_REDIS_URL",
        "TAUGATE_SOMETHING_ELSE": None,
    }


def test_service_warns_of_unknown_and_former_variables(releases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUGATE_MAXK", "3")
    monkeypatch.setenv("TAUGATE_DRIFT_BLOCK", "400")
    with ServiceProcess(releases).ready() as service:
        log = [json.loads(line) for line in service.log().splitlines()]
    (warning,) = [line for line in log if line["message"] == "unknown setting ignored"]
    assert (warning["level"], warning["variable"], warning["nearest"]) == ("warning", "TAUGATE_MAXK", "TAUGATE_MAX_K")
    (notice,) = [line for line in log if line["message"] == "former setting"]
    assert (notice["variable"], notice["use"]) == ("TAUGATE_DRIFT_BLOCK", "TAUGATE_DRIFT=VALUE,block=VALUE")
