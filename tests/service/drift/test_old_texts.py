"""Old texts are removed from the query log, and no line of concurrent writers is lost."""

import os
import threading
import time
from pathlib import Path

import orjson
import pytest

from taugate.drift.observations import hashed
from taugate.drift.query_log import hashed_filter
from taugate.registry.catalog import find
from taugate.retrieval.query import Query
from taugate.retrieval.reader import Release, load
from taugate.service.drift import query_log
from taugate.service.drift.query_log import QueryLog, ServedReply, forget_old_texts
from tests.prometheus_process import until
from tests.service.records import record
from tests.service_process import ServiceProcess

DAY = 86400.0
NOW = 100 * DAY
HOUR = 3600.0


@pytest.fixture(scope="module")
def release(releases: Path) -> Release:
    return load(find(releases))


def line(at: float, query: str, query_filter: object = None) -> bytes:
    return orjson.dumps({"v": 2, "at": at, "query": query, "filter": query_filter, "release": "r"}) + b"\n"


def served(at: float, text: str) -> ServedReply:
    return ServedReply(at, "a" * 32, Query(text, 5), None, record([]))


def test_old_texts_are_hashed(tmp_path: Path) -> None:
    log, query_filter = tmp_path / "log", {"patient": "Ada"}
    recent, torn = line(NOW - 2 * DAY, "recent", query_filter), b'{"at": 5, "quer'
    log.write_bytes(line(NOW - 8 * DAY, "old", query_filter) + line(NOW - 9 * DAY, hashed("older")) + recent + torn)
    log.chmod(0o640)
    assert forget_old_texts(log, 7, NOW) == 1
    assert log.read_bytes() == (
        line(NOW - 8 * DAY, hashed("old"), hashed_filter(query_filter))
        + line(NOW - 9 * DAY, hashed("older"))
        + recent
        + torn
    )
    assert log.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == [".log.texts", "log"]


def test_old_texts_are_hashed_once_an_hour(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(line(1.0, "old"))
    assert forget_old_texts(log, 7, NOW) == 1
    log.write_bytes(line(1.0, "old"))
    assert forget_old_texts(log, 7, NOW + HOUR - 1) == 0
    assert forget_old_texts(log, 7, NOW + HOUR) == 1


def test_log_without_old_texts_is_unchanged(tmp_path: Path) -> None:
    assert forget_old_texts(tmp_path / "nothing", 7, NOW) == 0
    os.mkfifo(tmp_path / "pipe")
    assert forget_old_texts(tmp_path / "pipe", 7, NOW) == 0
    log = tmp_path / "log"
    log.write_bytes(line(NOW, "recent"))
    before = log.stat().st_ino
    assert forget_old_texts(log, 7, NOW) == 0
    assert log.stat().st_ino == before


def test_leftover_copy_is_deleted(tmp_path: Path) -> None:
    log, left = tmp_path / "log", tmp_path / ".log.copy"
    log.write_bytes(line(NOW, "recent"))
    left.write_bytes(line(1.0, "a text that nobody would look for"))
    assert forget_old_texts(log, 7, NOW) == 0
    assert not left.exists()


@pytest.mark.parametrize("how", ["cut", "cut and written to", "moved away"])
def test_log_rotated_during_copy_is_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """logrotate cuts a log (copytruncate) or moves it away, while its lines are copied."""
    log, recent = tmp_path / "log", line(NOW, "recent")
    log.write_bytes(b"".join(line(1.0, f"old {number}") for number in range(10_000)))
    expected = b"" if how == "cut" else recent

    def rotate(query: str) -> str:
        if query == "old 0":
            if how == "moved away":
                log.rename(tmp_path / "log.1")
            else:
                os.truncate(log, 0)
            with log.open("ab") as file:
                file.write(expected)
        return hashed(query)

    monkeypatch.setattr(query_log, "hashed", rotate)
    assert forget_old_texts(log, 7, NOW) == 0
    assert log.read_bytes() == expected


@pytest.mark.slow
def test_concurrent_writers_lose_no_line(release: Release, tmp_path: Path) -> None:
    path = tmp_path / "log"
    done = threading.Event()
    written = [0, 0]

    def write(number: int) -> None:
        log = QueryLog(path, release, texts=True)
        while not done.is_set():
            log.write([served(1.0, f"{number} {written[number]}")], [])
            written[number] += 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    hours = 0
    changed = 0
    until_then = time.monotonic() + 3
    while hours < 4 or time.monotonic() < until_then:  # a busy machine gets through few rounds in three seconds
        changed += forget_old_texts(path, 1, NOW + hours * HOUR)
        hours += 1
    done.set()
    for thread in threads:
        thread.join()
    changed += forget_old_texts(path, 1, NOW + hours * HOUR)
    texts = [orjson.loads(each)["query"] for each in path.read_bytes().splitlines()]
    assert sorted(texts) == sorted(hashed(f"{n} {each}") for n in range(2) for each in range(written[n]))
    assert changed == len(texts) > 100
    assert hours > 3


def test_service_hashes_old_texts(releases: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(line(time.time() - 2 * DAY, "an old question") + line(time.time(), "a recent question"))
    settings = {"TAUGATE_QUERY_LOG": str(log), "TAUGATE_QUERY_LOG_TEXTS": "true", "TAUGATE_QUERY_LOG_DAYS": "1"}
    with ServiceProcess(releases, **settings).ready() as service:
        until(lambda: "an old question" not in log.read_text())
        until(lambda: "replaced old texts in the query log by hashes" in service.log())
    assert "a recent question" in log.read_text()
