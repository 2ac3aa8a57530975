"""The chained query log of real services: what they write, and what a kill loses."""

import hmac
import signal
from pathlib import Path

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from taugate.cli import main as cli
from taugate.drift.query_log import ROOT
from tests.prometheus_process import until
from tests.service_process import ServiceProcess

QUERIES = ["What does a building permit cost?", "Who is liable for hidden defects?", "best recipe for pizza dough"]


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """Settings of a chained log, with its key; the public one is in public.pem."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key.pem").write_bytes(private)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "public.pem").write_bytes(public)
    return {
        "TAUGATE_QUERY_LOG": str(tmp_path / "queries.log"),
        "TAUGATE_QUERY_LOG_CHAIN": "on",
        "TAUGATE_DECISION_LOG_KEY_FILE": str(tmp_path / "key.pem"),
    }


def lines_of(log: Path) -> list[dict[str, object]]:
    written = log.read_bytes().splitlines() if log.exists() else []
    return [orjson.loads(line) for line in written if not line.startswith(ROOT)]


def verified(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    command = ["log", "verify", str(folder / "queries.log"), "--trusted-keys", str(folder / "public.pem")]
    assert cli.main(command) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_ended_service_leaves_a_sealed_log(
    releases: Path, settings: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, salts = tmp_path / "queries.log", tmp_path / "queries.log.salts"
    with ServiceProcess(releases, **settings).ready() as service:
        replies = {reply["query_id"]: (query, reply) for query in QUERIES for reply in [service.search(query)]}
        service.stop()
    lines, salt_of = lines_of(log), dict(line.split() for line in salts.read_text().splitlines())
    assert salts.stat().st_mode & 0o077 == 0
    for line in lines:
        query, reply = replies[str(line["query_id"])]
        text = query.encode()
        assert line["hmac"] == hmac.digest(bytes.fromhex(salt_of[str(line["query_id"])]), text, "sha256").hex()
        assert (line["release"], line["reason"]) == (reply["release"], reply["reason"])
        assert line["refused"] is (reply["reason"] == "unanswerable") and line["rho"] is not None
        assert query not in log.read_text()
    assert len(lines) == len(QUERIES)
    assert verified(tmp_path, capsys).startswith("ok: 3 lines, 2 roots")


def test_killed_service_loses_a_second(
    releases: Path, settings: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "queries.log"
    with ServiceProcess(releases, forked=False, **settings).ready() as service:
        before = {service.search(query)["query_id"] for query in QUERIES}
        until(lambda: before <= {line["query_id"] for line in lines_of(log)})
        service.search(QUERIES[0])
        service.stop(signal.SIGKILL)
    assert verified(tmp_path, capsys)
    with ServiceProcess(releases, **settings).ready() as service:
        service.search()
        service.stop()
    assert before <= {line["query_id"] for line in lines_of(log)}
    assert verified(tmp_path, capsys)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"TAUGATE_QUERY_LOG_TEXTS": "true"}, "TAUGATE_QUERY_LOG_CHAIN"),
        ({"TAUGATE_DECISION_LOG_KEY_FILE": "/nowhere.pem"}, "/nowhere.pem"),
    ],
)
def test_chained_log_that_cannot_be_is_refused(
    releases: Path, settings: dict[str, str], tmp_path: Path, change: dict[str, str], sentence: str
) -> None:
    service = ServiceProcess(releases, **settings | change)
    status, said = service.process.wait(60), service.log()
    assert status == 2 and sentence in said
