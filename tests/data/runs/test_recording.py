"""A run is recorded query by query, and continues where it stopped."""

import json
from collections.abc import Callable, Collection, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from taugate.data.queries import read_queries
from taugate.data.runs.presets import TRIES, HttpStore
from taugate.data.runs.recording import RunFile, add_run, read_run_queries, record_run
from taugate.data.runs.run import Run
from taugate.data.runs.search_request import StoreRequest, StoreSearch
from taugate.errors import InputError
from tests.language_model import Fault, html, send, status
from tests.loopback import LoopbackHTTPServer

REQUEST = {"path": "/find?q=$query&n=$depth", "results": "found", "id": "id", "score": "s", "text": "t"}
Answers = Callable[[str], list[dict[str, object]]]


class Searching:
    """A search over HTTP; `faults` replace the next replies, and `queries` are those that were answered."""

    def __init__(self) -> None:
        self.url, self.queries, self.faults = "", list[str](), list[Fault]()

    def search(self, **own: object) -> StoreSearch:
        request = StoreRequest.parse(REQUEST | own, "request")
        return StoreSearch(request, HttpStore("http", self.url, first_wait=0.01))


@pytest.fixture
def searching() -> Iterator[Searching]:
    state = Searching()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if state.faults:
                return state.faults.pop(0)(self)
            state.queries.append(self.path)
            listed = [{"id": place, "s": 9 - place, "t": f"text {place}", "bm25": 2} for place in range(3)]
            return send(self, 200, json.dumps({"found": listed}))

        def log_message(self, *_: object) -> None:
            pass

    with LoopbackHTTPServer(Handler) as server:
        state.url = server.url
        yield state


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    lines = [{"_id": f"q{place}", "text": f"a & b {place}", "origin": "crop"} for place in range(4)]
    path = tmp_path / "queries.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def record(run: Path, queries: Path, search: StoreSearch, request: str = "r1", used: Collection[str] = ()) -> int:
    file = RunFile(run, request, read_run_queries(queries), used)
    record_run(file.pending, search, file, 3, 1e6, lambda units: None)
    return len(file.pending)


def test_run_is_recorded_and_read(searching: Searching, queries: Path, tmp_path: Path) -> None:
    assert record(tmp_path / "run.jsonl", queries, searching.search(scores={"bm25": "bm25"})) == 4
    assert searching.queries[0] == "/find?q=a%20%26%20b%200&n=3"
    run = Run.read(tmp_path / "run.jsonl")
    query = run.queries["q3"]
    assert (query.text, query.origin, query.scores.tolist()) == ("a & b 3", "crop", [9, 8, 7])
    assert query.components["bm25"].tolist() == [2, 2, 2]


def test_interrupted_run_resumes_after_its_last_line(searching: Searching, queries: Path, tmp_path: Path) -> None:
    run = tmp_path / "run.jsonl"
    searching.faults += [status(404)]
    with pytest.raises(InputError, match="status 404"):
        record(run, queries, searching.search())
    assert not run.exists()
    assert record(run, queries, searching.search()) == 4
    complete = run.read_bytes()
    lines = complete.splitlines(keepends=True)
    run.write_bytes(b"".join(lines[:2]) + lines[2][:20])
    assert record(run, queries, searching.search()) == 2
    assert run.read_bytes() == complete
    assert record(run, queries, searching.search()) == 0


def test_run_of_another_request_is_not_continued(searching: Searching, queries: Path, tmp_path: Path) -> None:
    record(tmp_path / "run.jsonl", queries, searching.search())
    with pytest.raises(InputError, match=r"run\.jsonl: was written by another request"):
        RunFile(tmp_path / "run.jsonl", "r2", read_run_queries(queries))


def rewritten(queries: Path, *lines: dict[str, object]) -> None:
    queries.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def test_corrected_question_is_sent_again(searching: Searching, queries: Path, tmp_path: Path) -> None:
    run = tmp_path / "run.jsonl"
    rewritten(queries, {"_id": "q1", "text": "wrong"}, {"_id": "q2", "text": "kept"}, {"_id": "q3", "text": "gone"})
    assert record(run, queries, searching.search()) == 3
    rewritten(queries, {"_id": "q1", "text": "right"}, {"_id": "q2", "text": "kept"}, {"_id": "q4", "text": "new"})
    file = RunFile(run, "r1", read_run_queries(queries))
    assert (file.changed, file.removed, [fields["query"] for fields in file.pending]) == (1, 1, ["right", "new"])
    # Before anything is sent, no line is left that the store did not reply to with this question.
    assert [json.loads(line)["query"] for line in run.read_text(encoding="utf-8").splitlines()] == ["kept"]
    assert record(run, queries, searching.search()) == 2
    assert {query.text for query in Run.read(run).queries.values()} == {"right", "kept", "new"}
    assert record(run, queries, searching.search()) == 0


@pytest.mark.parametrize("change", [{"vector": [1, 3]}, {"tenant": "b"}, {"origin": "llm"}])
def test_query_with_other_fields_is_sent_again(
    searching: Searching, queries: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    line: dict[str, object] = {
        "_id": "q1",
        "text": "roof",
        "vector": [1, 2],
        "tenant": "a",
        "origin": "crop",
        "note": 1,
    }
    rewritten(queries, line)
    used = {"vector", "tenant"}
    assert record(tmp_path / "run.jsonl", queries, searching.search(), used=used) == 1
    rewritten(queries, line | {"note": 2})
    assert record(tmp_path / "run.jsonl", queries, searching.search(), used=used) == 0
    rewritten(queries, line | change)
    assert record(tmp_path / "run.jsonl", queries, searching.search(), used=used) == 1


def test_queries_of_changed_encoder_are_sent_again(searching: Searching, queries: Path, tmp_path: Path) -> None:
    run, fields = tmp_path / "run.jsonl", read_run_queries(queries)
    file = RunFile(run, "r1", fields, encoder="sha of one")
    record_run(file.pending, searching.search(), file, 3, 1e6, lambda units: None)
    assert not RunFile(run, "r1", fields, encoder="sha of one").pending
    file = RunFile(run, "r1", fields, encoder="sha of another")
    assert (file.changed, len(file.pending)) == (4, 4)


def test_run_of_earlier_version_is_resumed(searching: Searching, queries: Path, tmp_path: Path) -> None:
    """Its lines have no digest of further fields."""
    run = tmp_path / "run.jsonl"
    assert record(run, queries, searching.search()) == 4
    assert record(run, queries, searching.search(), used={"vector"}) == 0


def test_corrected_question_is_corrected_in_texts(searching: Searching, queries: Path, tmp_path: Path) -> None:
    run, data = tmp_path / "run.jsonl", tmp_path / "data"
    rewritten(queries, {"_id": "q1", "text": "wrong"}, {"_id": "q2", "text": "kept"})
    record(run, queries, searching.search())
    add_run(data, run, read_run_queries(queries))
    rewritten(queries, {"_id": "q1", "text": "right"}, {"_id": "q2", "text": "kept"})
    record(run, queries, searching.search())
    add_run(data, run, read_run_queries(queries))
    assert [query.text for query in read_queries(data / "queries.jsonl").values()] == ["kept", "right"]


def test_busy_store_is_tried_again(searching: Searching, queries: Path, tmp_path: Path) -> None:
    searching.faults += [status(429, Retry_After="0"), status(503)]
    assert record(tmp_path / "run.jsonl", queries, searching.search()) == 4
    searching.faults += [status(503)] * TRIES
    with pytest.raises(ConnectionError, match="the last one as the status was 503; the same command resumes the run"):
        searching.search().search({"query": "a", "depth": 1})


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"results": "hits"}, "nothing at 'hits': .*; correct the place in the request"),
        ({"score": "t"}, "has the score 'text 0', not a finite number"),
        ({"path": "find?q=$query"}, "is not a search of http"),
        ({"path": "/find"}, r'neither "\$query" nor "\$vector"'),
        ({"limit": 3}, "limit: Extra inputs are not permitted"),
    ],
)
def test_wrong_request_is_an_error(searching: Searching, own: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        searching.search(**own).search({"query": "a", "depth": 3})


@pytest.mark.parametrize("fault", [html, status(302, Location="http://127.0.0.1:1/")])
def test_other_replies_are_errors(searching: Searching, fault: Fault) -> None:
    searching.faults += [fault]
    with pytest.raises(InputError, match="not JSON|status 302"):
        searching.search().search({"query": "a", "depth": 3})


def test_returned_texts_become_a_data_set(searching: Searching, queries: Path, tmp_path: Path) -> None:
    run, data = tmp_path / "run.jsonl", tmp_path / "data"
    record(run, queries, searching.search())
    assert add_run(data, run, read_run_queries(queries)) == (3, 0)
    before = (data / "corpus.jsonl").read_text(encoding="utf-8")
    assert json.loads(before.splitlines()[2]) == {"_id": "2", "text": "text 2"}
    assert (data / "queries.jsonl").read_text(encoding="utf-8").count('"origin":"crop"') == 4
    assert add_run(data, run, read_run_queries(queries)) == (3, 0)
    assert (data / "corpus.jsonl").read_text(encoding="utf-8") == before
