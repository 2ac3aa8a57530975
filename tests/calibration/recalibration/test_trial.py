"""The trial of a new release on live traffic, and what newer data need."""

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from taugate.calibration.progress import Job
from taugate.calibration.recalibration.request import Verdict
from taugate.calibration.recalibration.trial import TrialResult, TrialSettings, try_release
from taugate.errors import InputError
from taugate.registry.catalog import shadow_id
from taugate.release.manifest import Manifest
from taugate.release.state import ErasureRecord, WithdrawnRecord
from taugate.release.verify import verify, verify_searchable
from taugate.service.lifecycle.shadow import ShadowGauges
from tests.registry.conftest import copy, first, three

__all__ = ["copy", "first", "three"]

KEPT, EMPTY = {"a": True, "b": False}, {"a": False, "c": False}
GOOD = TrialResult(200, 0, 50, 10, 10, 0.9, 5.0, 200)


@contextmanager
def service(
    manifest: Manifest, compared: int, status: int = 200, address: tuple[str, int] = ("127.0.0.1", 0)
) -> Iterator[tuple[str, list[str]]]:
    """Metrics of a service whose shadow has answered some queries, half of them with nothing; and what was asked."""
    registry = CollectorRegistry()
    gauges = ShadowGauges(registry, manifest)
    for number in range(compared):
        gauges.compare(KEPT, EMPTY if number % 2 else KEPT, (0.01, 0.01))
    gauges.count("failed")
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.command} {self.path} {self.headers.get('Authorization')}")
            self.send_response(status)
            self.end_headers()
            self.wfile.write(generate_latest(registry))

        do_POST = do_GET  # noqa: N815 (as the standard library names it)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(address, Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{address[0]}:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_trial_adds_counts_of_replicas(copy: Path, three: list[str]) -> None:
    name, said = three[0], list[str]()
    manifest = verify(copy / name)
    with service(manifest, 30) as (one, asked), service(manifest, 20) as (other, _):
        found = try_release(copy, name, TrialSettings((one, other), 50, 5, "secret"), None, Job(said.append))
    assert shadow_id(copy) == name
    assert replace(found, seconds=0.0) == TrialResult(50, 2, 25, 0, 25, 0.75, 0.0, 50)
    assert "without a result" in str(found.objection) or "failed to answer" in str(found.objection)
    assert asked[0] == "POST /admin/reload Bearer secret"
    assert asked[1] == "GET /metrics Bearer secret"
    assert "50 queries of 2 services" in said[0]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no second loopback address")
def test_name_with_several_addresses_reaches_all(copy: Path, three: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def pods(host: str, *rest: object, **options: object) -> list[tuple[object, ...]]:
        if host != "taugate-pods":
            return resolve(host, *rest, **options)  # type: ignore[arg-type, return-value]  # passed on
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in ("127.0.0.2", "127.0.0.1")] + [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0))
        ]  # of one of the same pods

    monkeypatch.setattr(socket, "getaddrinfo", pods)
    manifest = verify(copy / three[0])
    with service(manifest, 30) as (one, asked):
        port = int(one.rpartition(":")[2])
        with service(manifest, 20, address=("127.0.0.2", port)) as (_, others):
            settings = TrialSettings((f"http://taugate-pods:{port}/",), 50, 5, "secret")
            found = try_release(copy, three[0], settings, None, Job())
    assert (found.compared, found.silent) == (50, ())
    for each in (asked, others):
        assert each[0] == "POST /admin/reload Bearer secret"
        assert each[1] == "GET /metrics Bearer secret"


def test_trial_ignores_other_shadow_releases(copy: Path, three: list[str]) -> None:
    with service(verify(copy / three[1]), 30) as (url, _):
        found = try_release(copy, three[0], TrialSettings((url,), 20, 0.1), None, Job())
    assert (found.compared, found.overlap) == (0, None)
    assert "tried it on 0 of 20 queries" in str(found.objection)


def test_rejected_key_ends_trial(copy: Path, three: list[str]) -> None:
    with (
        service(verify(copy / three[0]), 0, status=403) as (url, _),
        pytest.raises(InputError, match="403 Forbidden; put an API key with the scope metrics into TAUGATE_KEY"),
    ):
        try_release(copy, three[0], TrialSettings((url,), 20, 60), None, Job())


def test_invalid_response_is_retried(copy: Path, three: list[str]) -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:  # closed
                    return
                with client:
                    client.recv(65_536)
                    client.sendall(b"nonsense\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        found = try_release(copy, three[0], TrialSettings((url,), 20, 0.1), None, Job(said.append))
        server.shutdown(socket.SHUT_RDWR)
    thread.join()
    assert "nonsense; trying again" in said[-1]
    assert f"{url} did not respond" in str(found.objection)


@pytest.mark.parametrize(
    ("changes", "objection"),
    [
        ({}, None),
        ({"empty_now": 20}, None),
        ({"empty_now": 21}, "leaves 21 of 200 queries without a result"),
        ({"failed": 2}, None),
        ({"failed": 3}, "failed to answer 3 of 203"),
        ({"compared": 150}, "on 150 of 200 queries"),
    ],
)
def test_trial_objections(changes: dict[str, int], objection: str | None) -> None:
    found = replace(GOOD, **changes).objection  # type: ignore[arg-type]  # counts, all of them
    assert found is None if objection is None else objection in str(found)


WITHDRAWN = [WithdrawnRecord(promise="loss", words="At most 2 %.", reason="it is 3 %")]
ERASURE = ErasureRecord(release="20260101T000000Z-0123456789ab", documents=1)


def without_threshold(manifest: Manifest) -> dict[str, Any]:
    return {"policy": manifest.policy.model_copy(update={"kind": "none", "tau": None})}


@pytest.mark.parametrize(
    ("changed", "facts", "path", "because"),
    [
        ((), {}, "nothing", "the documents and labels are those of the current release"),
        (("corpus",), {}, "check", "the documents changed, and the labels did not"),
        (("qrels",), {}, "calibration", "the labels changed (qrels)"),
        (("corpus", "queries", "qrels"), {}, "calibration", "the labels changed (queries and qrels)"),
        ((), {"withdrawn": WITHDRAWN}, "calibration", "does not keep its promises"),
        ((), {"erasure": ERASURE}, "check", "the documents changed"),
    ],
)
def test_verdict_follows_changed_files(
    copy: Path, first: str, changed: tuple[str, ...], facts: dict[str, Any], path: str, because: str
) -> None:
    manifest = verify_searchable(copy / first)
    digests = {name: "other" if name in changed else digest for name, digest in manifest.data.sha256.items()}
    verdict = Verdict.of(manifest.model_copy(update=facts), digests)
    assert verdict.path == path
    assert because in verdict.because


def test_missing_threshold_is_not_checked(copy: Path, first: str) -> None:
    manifest = verify_searchable(copy / first)
    without = manifest.model_copy(update=without_threshold(manifest))
    assert Verdict.of(without, {**manifest.data.sha256}).path == "nothing"
    assert Verdict.of(without, {**manifest.data.sha256, "corpus": "other"}).path == "calibration"


def test_changed_vectors_alone_are_calibrated(copy: Path, first: str) -> None:
    manifest = verify_searchable(copy / first)
    sha256 = {**manifest.data.sha256, "vectors": "some", "query_vectors": "some"}
    own = manifest.model_copy(update={"data": manifest.data.model_copy(update={"sha256": sha256})})
    assert Verdict.of(own, sha256).path == "nothing"
    assert Verdict.of(own, sha256 | {"vectors": "other"}).path == "calibration"
    assert Verdict.of(own, sha256 | {"vectors": "other", "corpus": "other"}).path == "check"
