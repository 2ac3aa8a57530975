"""The lines of the query log: written, read back, incomplete, foreign, and of an earlier version."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from taugate.drift.observations import hashed
from taugate.drift.query_log import LoggedJudgement, LoggedQuery, ShownResult, line_bytes, read_query_log
from taugate.errors import InputError

QUERY = LoggedQuery(
    at=1.5,
    query_id="a" * 32,
    query="Behöver jag bygglov?",
    key="shop",
    collection="faq",
    release="20260101T000000Z-0123456789ab",
    filter={"lang": ["sv", "en"], "year": {"gte": 2019}},
    k=5,
    threshold=None,
    group_by=None,
    kept=2,
    topk=[0.5, 0.25],
    random=[0.125],
    shown=[
        ShownResult(id="d1", rank=1, score=0.5, propensity=1.0),
        ShownResult(id="d2", rank=4, score=0.25, propensity=0.05),
    ],
)
JUDGEMENT = LoggedJudgement(
    at=2.5,
    query_id="a" * 32,
    query=None,
    document_id="d2",
    relevant=False,
    rank=4,
    score=0.25,
    key=None,
    collection="faq",
    release="20260101T000000Z-0123456789ab",
)


def write(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"".join(lines))
    return path


def test_written_lines_are_read_back(tmp_path: Path) -> None:
    log = write(tmp_path / "log", line_bytes(QUERY), line_bytes(JUDGEMENT))
    lines = [*read_query_log([log])]
    assert [line.record for line in lines] == [QUERY, JUDGEMENT]
    assert [line.number for line in lines] == [1, 2]


def test_line_format_is_documented() -> None:
    assert orjson.loads(line_bytes(QUERY)) == {
        "v": 2,
        "at": 1.5,
        "query_id": "a" * 32,
        "query": "Behöver jag bygglov?",
        "key": "shop",
        "collection": "faq",
        "release": "20260101T000000Z-0123456789ab",
        "filter": {"lang": ["sv", "en"], "year": {"gte": 2019}},
        "k": 5,
        "threshold": None,
        "group_by": None,
        "kept": 2,
        "topk": [0.5, 0.25],
        "random": [0.125],
        "shown": [
            {"id": "d1", "rank": 1, "score": 0.5, "propensity": 1.0},
            {"id": "d2", "rank": 4, "score": 0.25, "propensity": 0.05},
        ],
        "stage": None,
        "not_comparable": None,
        "components": [],
    }
    assert orjson.loads(line_bytes(JUDGEMENT)) == {
        "v": 2,
        "at": 2.5,
        "query_id": "a" * 32,
        "query": None,
        "document_id": "d2",
        "relevant": False,
        "rank": 4,
        "score": 0.25,
        "key": None,
        "collection": "faq",
        "release": "20260101T000000Z-0123456789ab",
        "stage": None,
        "not_comparable": None,
        "kept": False,
        "of": 0,
        "query_hash": None,
    }


@pytest.mark.parametrize("cut", [1, 20, 60, len(line_bytes(QUERY)) - 2])
def test_incomplete_last_line_is_skipped(tmp_path: Path, cut: int) -> None:
    log = write(tmp_path / "log", line_bytes(JUDGEMENT), line_bytes(QUERY)[:cut])
    assert [line.record for line in read_query_log([log])] == [JUDGEMENT]


def test_text_and_hash_have_equal_key() -> None:
    private = replace(QUERY, query=hashed(QUERY.query))
    assert QUERY.has_text
    assert not private.has_text
    assert private.query_key == QUERY.query_key


def changed(**fields: object) -> bytes:
    return orjson.dumps(orjson.loads(line_bytes(QUERY)) | fields) + b"\n"


FOREIGN: dict[str, tuple[bytes, str]] = {
    "a line of another log": (b'{"level": "info", "message": "ready"}\n', '"v" is missing, not 2'),
    "a later version": (changed(v=3), '"v" is 3, not 2'),
    "no JSON": (b"GET /search 200\n", "not JSON"),
    "an empty line": (b"\n", "not JSON"),
    "a list": (b"[1]\n", "not a JSON object"),
    "torn in the middle": (line_bytes(QUERY)[:40] + b"\n", "not JSON"),
    "a propensity of nothing": (
        changed(shown=[{"id": "d1", "rank": 1, "score": 0.5, "propensity": 0.0}]),
        '"shown.0.propensity": input should be greater than 0',
    ),
    "a rank as text": (changed(shown=[{"id": "d1", "rank": "1", "score": 0.5, "propensity": 1}]), '"shown.0.rank": '),
    "a judgement that says nothing": (changed(relevant="yes"), '"document_id": field required'),
    "of version 1": (
        b'{"at": 1, "query_id": "q", "query": "q", "kept": 1, "topk": [1], "random": [1], "release": "r"}\n',
        "written by a version before 0.3",
    ),
    "a judgement of version 1": (
        b'{"at": 1, "query_id": "q", "document_id": "d", "correct": 0.5, "release": "r"}\n',
        "begin a new log",
    ),
}


@pytest.mark.parametrize(("line", "said"), FOREIGN.values(), ids=FOREIGN.keys())
def test_foreign_line_is_refused_with_number(tmp_path: Path, line: bytes, said: str) -> None:
    log = write(tmp_path / "log", line_bytes(QUERY), line, line_bytes(JUDGEMENT))
    with pytest.raises(InputError) as error:
        [*read_query_log([log])]
    assert str(error.value).startswith(f"{log}:2: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


FILES: dict[str, tuple[Callable[[Path], list[Path]], str]] = {
    "missing": (
        lambda folder: [folder / "nothing"],
        "no such file; the service writes one if TAUGATE_QUERY_LOG names it",
    ),
    "named twice": (lambda folder: [folder / "log", folder / "." / "log"], "named twice"),
    "packed": (lambda folder: [folder / "log.1.gz"], "unpack it with gunzip"),
    "a folder": (lambda folder: [folder], "cannot be read"),
}


@pytest.mark.parametrize(("named", "said"), FILES.values(), ids=FILES.keys())
def test_other_files_are_refused(tmp_path: Path, named: Callable[[Path], list[Path]], said: str) -> None:
    write(tmp_path / "log", line_bytes(QUERY))
    with pytest.raises(InputError, match=said):
        [*read_query_log(named(tmp_path))]
