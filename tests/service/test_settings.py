"""Settings: each variable reaches its group, older names still work, and another process reads the same."""

import os
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from taugate.cli.serve import read_settings
from taugate.errors import InputError
from taugate.service.settings import VARIABLES, Settings
from tests.service.process.test_start import refusal

RENAMED = [
    ("drift_average_run_length", "TAUGATE_DRIFT_SELDOM", "1e12", 1e12),
    ("allow_unauthenticated", "TAUGATE_ALLOW_ANYONE", "true", True),
]
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


def test_every_name_is_a_setting() -> None:
    known = {name.upper() for variable in VARIABLES.values() for name in variable.names}
    assert known - set(NAMES) == {"DRIFT_AVERAGE_RUN_LENGTH", "ALLOW_UNAUTHENTICATED"}
    assert set(NAMES) <= known


def test_variables_reach_their_groups_whatever_their_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUGATE_DRIFT", "false")
    monkeypatch.setenv("taugate_cache_bytes", "0")
    monkeypatch.setenv("TAUGATE_CACHE", "/elsewhere")  # of the calibration
    settings = Settings(releases="s3://bucket/team", max_k=7)
    assert (settings.drift.enabled, settings.cache.max_bytes, settings.requests.max_k) == (False, 0, 7)
    assert settings.releases.location == "s3://bucket/team"
    monkeypatch.setenv("TAUGATE_MAX_K", "9")
    assert Settings(releases="r", max_k=7).requests.max_k == 7, "what is given goes before the environment"
    assert Settings(releases="r").requests.max_k == 9


@pytest.mark.parametrize(("name", "older", "text", "value"), RENAMED)
def test_an_older_name_still_works(
    name: str, older: str, text: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(older, text)
    settings = Settings(releases="r")
    assert settings.by_variable()[name] == value
    logged = settings.for_log()
    assert logged[name] == logged[older.removeprefix("TAUGATE_").lower()] == value


@pytest.mark.parametrize(("name", "older", "text"), [row[:3] for row in RENAMED])
def test_both_names_at_once_are_refused(name: str, older: str, text: str, releases: Path) -> None:
    new = f"TAUGATE_{name.upper()}"
    message = refusal("--releases", str(releases), **{older: text, new: text})
    assert message == f"taugate: {new} and its older name {older} are both set; unset {older}"


def test_another_process_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_value_that_cannot_be_used_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, text in {"MAX_K": "0", "DRIFT_BLOCK": "5", "DRIFT_SELDOM": "0", "REDIS_TIMEOUT_MS": "soon"}.items():
        with monkeypatch.context() as patch:
            patch.setenv(f"TAUGATE_{variable}", text)
            with pytest.raises(InputError, match=f"^TAUGATE_{variable} .*, got '{text}'$"):
                read_settings(releases="r")
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Settings(releases="r", max_kk=5)
