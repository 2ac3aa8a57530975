"""A run is recorded query by query, and continues where it stopped."""

import gzip
import json
from collections.abc import Callable, Collection, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest

from taugate.data.queries import read_queries
from taugate.data.runs.presets import TRIES, HttpStore
from taugate.data.runs.recording import RunFile, add_run, read_run_queries, record_run
from taugate.data.runs.run import JudgedRun, Run
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


TREC = ["q1 Q0 d1 1 0.9 bm25", "q1 Q0 d2 2 0.5 bm25", "q2 Q0 d3 1 0.7 bm25", "q2 Q0 d1 2 0.7 bm25"]
QRELS = ["query-id\tcorpus-id\tscore", "q1\td2\t1", "q2\td9\t0"]


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def json_line(*scores: float, query: str = "q1", **more: object) -> str:
    results = [{"id": f"d{place}", "score": score, **more} for place, score in enumerate(scores)]
    return json.dumps({"query_id": query, "results": results})


def test_trec_run_is_read_with_its_tag_and_scores(tmp_path: Path) -> None:
    run = Run.read(written(tmp_path / "run.txt", TREC))
    assert (run.name, [*run.queries], [*run.numbers]) == ("bm25", ["q1", "q2"], ["d1", "d2", "d3"])
    np.testing.assert_array_equal(run.queries["q2"].scores, np.array([0.7, 0.7], dtype=np.float32))
    assert run.queries["q2"].documents.tolist() == [2, 0]


def test_json_run_is_read_with_texts_and_component_scores(tmp_path: Path) -> None:
    first = {"id": 7, "score": 0.9, "scores": {"bm25": 3, "dense": None}}
    record = {"query_id": "q1", "query": "why", "results": [first, {"id": "b", "score": 0.1, "scores": {"dense": 0.2}}]}
    run = Run.read(written(tmp_path / "hybrid.jsonl", [json.dumps(record)]))
    query = run.queries["q1"]
    assert (run.name, query.text, [*run.numbers]) == ("hybrid", "why", ["7", "b"])
    np.testing.assert_array_equal(query.components["bm25"], np.array([3, np.nan], dtype=np.float32))
    np.testing.assert_array_equal(query.components["dense"], np.array([np.nan, 0.2], dtype=np.float32))


def test_packed_run_equals_the_plain_one(tmp_path: Path) -> None:
    plain = Run.read(written(tmp_path / "run.txt", TREC))
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress("\n".join(TREC).encode()))
    packed = Run.read(tmp_path / "packed.txt")
    assert [*packed.numbers] == [*plain.numbers]
    assert [query.scores.tolist() for query in packed.queries.values()] == [
        query.scores.tolist() for query in plain.queries.values()
    ]


def test_distances_are_compared_as_negative_numbers(tmp_path: Path) -> None:
    run = Run.read(written(tmp_path / "run.jsonl", [json_line(0.1, 0.4)]), "distance")
    np.testing.assert_array_equal(run.queries["q1"].scores, np.array([-0.1, -0.4], dtype=np.float32))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["q1 Q0 d1 1 0.5 a", "q1 Q0 d2 2 0.9 a"], ":2: score 0.9 after 0.5; list results best first"),
        (["q1 Q0 d1 2 0.5 a", "q1 Q0 d2 1 0.4 a"], ":2: rank 1 after 2; list results best first"),
        (["q1 Q0 d1 1 0.5 a", "q1 Q0 d1 2 0.4 a"], ":2: document 'd1' twice for one query"),
        (["q1 Q0 d1 1 nan a"], ":1: score 'nan' is not a finite number"),
        (["q1 Q0 d1 1 1e39 a"], ":1: score '1e39' is not a finite number"),
        (["q1 Q0 d1 one 1 a"], ":1: rank 'one' is not a whole number"),
        (["q1 d1 1"], ":1: 3 fields, not 6"),
        ([json_line(0.1), json_line(0.1)], ":2: query 'q1' is already on line 1"),
        ([json_line(0.1, 0.2)], ":1: score 0.2 after 0.1; list results best first; for distances"),
        (['{"results": []}'], ':1: no "query_id"'),
        (['{"query_id": "q"}'], ':1: no "results", a list of results'),
        (['{"query_id": "q", "results": [{"score": 1}]}'], ":1: a result without an id"),
        (['{"query_id": "q", "results": [{"id": "d", "score": true}]}'], ":1: score 'True' is not a finite number"),
        ([json_line(0.1, scores={"bm25": "x"})], ":1: score 'bm25' 'x' is not a finite number"),
        ([json_line(0.1, scores=[1])], ':1: "scores" is not an object'),
    ],
)
def test_invalid_run_is_refused_with_its_line(tmp_path: Path, lines: list[str], message: str) -> None:
    path = written(tmp_path / "run", lines)
    with pytest.raises(InputError) as refused:
        Run.read(path)
    assert str(refused.value).startswith(f"{path}{message}")


def test_falling_distances_are_refused_in_their_own_sign(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r":1: score 0\.1 after 0\.4; list distances in rising order"):
        Run.read(written(tmp_path / "run.jsonl", [json_line(0.4, 0.1)]), "distance")


@pytest.mark.parametrize("trec", [False, True], ids=["BEIR", "TREC"])
def test_qrels_of_both_formats_give_the_same_queries(tmp_path: Path, trec: bool) -> None:
    lines = ["q1 0 d2 1", "q2 0 d9 0"] if trec else QRELS
    run, left_out = JudgedRun.read(Run.read(written(tmp_path / "run", TREC)), written(tmp_path / "test.tsv", lines), 2)
    assert [query.id for query in run.answerable] == ["q1"]
    assert [query.id for query in run.unanswerable] == ["q2"]
    assert run.answerable[0].relevant == {run.run.numbers["d2"]: 1}
    assert (run.split, run.depth, run.judged_share(2), left_out) == ("test", 2, 0.25, [])


def test_queries_without_results_or_judgements_are_left_out_and_counted(tmp_path: Path) -> None:
    qrels = written(tmp_path / "test.tsv", [*QRELS[:2], "q3\td1\t1", "q4\td1\t1"])
    run, left_out = JudgedRun.read(Run.read(written(tmp_path / "run", TREC)), qrels, 2)
    assert [query.id for query in run.answerable + run.unanswerable] == ["q1"]
    assert [sentence.rsplit(": ", 1)[1] for sentence in left_out] == ["1", "2"]


@pytest.mark.parametrize(
    ("k", "qrels", "message"),
    [
        (3, QRELS, "run: has at most 2 results per query, and K is 3; write the first 3 results of every query"),
        (2, ["query-id\tcorpus-id\tscore", "q2\td9\t0"], "no query of "),
        (2, ["query-id\tcorpus-id\tscore", "q1\td2\t1", "q1\td2\t1"], "test.tsv:3: 'q1' and 'd2' are judged twice"),
        (2, ["q1 d2"], "test.tsv:1: 2 fields, not 4; write TREC's query"),
        (2, ["query-id\tcorpus-id\tscore\tweight", "q1\td2\t1\t2.5"], "test.tsv:1: the queries have weights"),
    ],
)
def test_qrels_that_do_not_fit_the_run_are_refused(tmp_path: Path, k: int, qrels: list[str], message: str) -> None:
    run = Run.read(written(tmp_path / "run", TREC))
    with pytest.raises(InputError) as refused:
        JudgedRun.read(run, written(tmp_path / "test.tsv", qrels), k)
    assert message in str(refused.value)


def test_query_with_fewer_results_is_refused_with_its_line(tmp_path: Path) -> None:
    run = Run.read(written(tmp_path / "run", TREC[:3]))
    with pytest.raises(InputError, match=r"run:3: query 'q2' has 1 results, and 1 of 2 queries have fewer than K = 2"):
        JudgedRun.read(run, written(tmp_path / "test.tsv", QRELS), 2)
