"""`taugate traffic`: judgements that are used, their weights, and judgements that are left out."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.data.beir import read_dataset
from taugate.data.traffic import NothingLearnedError, TrafficLabels, learn_from_traffic
from taugate.drift.observations import hashed
from taugate.errors import InputError
from tests.data.traffic_log import TrafficLog

DOCUMENTS = [f"d{number}" for number in range(9)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "faq"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": item, "text": f"text {item}"}) + "\n" for item in DOCUMENTS)
    )
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "Known already?"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    return folder


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


def learn(log: TrafficLog, data: Path, **options: object) -> TrafficLabels:
    return learn_from_traffic([log.write(data.parent / "log")], data, **options)  # type: ignore[arg-type]


def rows(data: Path) -> dict[tuple[str, str], tuple[int, float]]:
    header, *lines = (data / "qrels" / "traffic.tsv").read_text().splitlines()
    assert header == "query-id\tcorpus-id\tscore\tweight"
    split = (line.split("\t") for line in lines)
    return {(query, document): (int(grade), float(weight)) for query, document, grade, weight in split}


def name(query: str) -> str:
    return f"traffic:{hashed(query)}"


def test_traffic_judgements_become_queries(data: Path, spool: Path) -> None:
    log = TrafficLog()
    log.judged(log.asked("New?", ["d1", "d2"]), "d2")
    log.judged(log.asked("Known already?", ["d3", "d4"]), "d3")
    result = learn(log, data)
    assert (result.queries, result.judgements, result.left_out.total()) == (2, 2, 0)
    assert {key: grade for key, (grade, _) in rows(data).items()} == {(name("New?"), "d2"): 1, ("q1", "d3"): 1}
    queries = [json.loads(line) for line in (data / "queries.jsonl").read_text().splitlines()]
    assert queries == [
        {"_id": "q1", "text": "Known already?"},
        {"_id": name("New?"), "text": "New?", "origin": "traffic"},
    ]
    read = read_dataset(data, "traffic", spool)
    assert {(query.text, query.origin) for query in read.answerable} == {
        ("New?", "traffic"),
        ("Known already?", "human"),
    }


def test_traffic_import_is_idempotent(data: Path) -> None:
    log = TrafficLog()
    for number in range(20):
        reply = log.asked(f"query {number % 7}", DOCUMENTS[number % 3 :][:4], explored={"d3": 0.1})
        log.judged(reply, DOCUMENTS[number % 3 + number % 2], number % 5 > 0)
    learn(log, data)
    before = {path: path.read_bytes() for path in data.rglob("*.*") if path.is_file()}
    learn(log, data)
    assert {path: path.read_bytes() for path in data.rglob("*.*") if path.is_file()} == before


def test_traffic_weight_is_inverse_probability(data: Path) -> None:
    """A tenth of the first places is judged and a twentieth of the second; d4 is shown to one query in ten."""
    log = TrafficLog()
    for number in range(4000):
        reply = log.asked(f"query {number}", ["d1", "d4"], explored={"d4": 0.1})
        if number % 10 == 0:
            log.judged(reply, "d1")
        if number % 20 == 1:
            log.judged(reply, "d4")
    learn(log, data)
    results = rows(data)
    assert results[name("query 0"), "d1"][1] == pytest.approx(10, rel=0.02)
    assert results[name("query 1"), "d4"][1] == pytest.approx(200, rel=0.02)


def test_repeated_query_raises_judging_probability(data: Path) -> None:
    log = TrafficLog()
    for number in range(1000):
        reply = log.asked(f"query {number}", ["d1"])
        if number % 2 == 0:
            log.judged(reply, "d1")
    for _ in range(2):
        log.judged(log.asked("query 0", ["d1"]), "d1")
    learn(log, data)
    results = rows(data)
    half = 1 / results[name("query 2"), "d1"][1]
    assert half == pytest.approx(0.5, abs=0.01)
    assert results[name("query 0"), "d1"][1] == pytest.approx(1 / (1 - (1 - half) ** 3))


def test_majority_decides_and_ties_dropped(data: Path) -> None:
    log = TrafficLog()
    for key, relevant in (("a", True), ("b", False), ("c", False), ("a", False)):
        log.judged(log.asked("Which?", ["d1", "d2"], key=key), "d1", relevant, key=key)
    for key, relevant in (("a", True), ("b", False)):
        log.judged(log.asked("Tied?", ["d1"], key=key), "d1", relevant, key=key)
    log.judged(log.asked("Which?", ["d1", "d2"], key="a"), "d2", key="a")
    result = learn(log, data)
    assert {key: grade for key, (grade, _) in rows(data).items()} == {
        (name("Which?"), "d1"): 0,
        (name("Which?"), "d2"): 1,
    }
    assert result.left_out == {"tied": 2}


def test_unanswered_query_needs_all_results_judged(data: Path, spool: Path) -> None:
    log = TrafficLog()
    complete, part, cut = (
        log.asked(query, shown)
        for query, shown in (("All?", ["d1", "d2", "d3"]), ("Some?", ["d1", "d2", "d3"]), ("Cut?", ["d1"]))
    )
    for reply, judged in ((complete, 3), (part, 2), (cut, 1)):
        for document in DOCUMENTS[1 : judged + 1]:
            log.judged(reply, document, False)
    result = learn(log, data)
    assert {query for query, _ in rows(data)} == {name("All?")}
    assert result.left_out == {"no_answer": 3}
    log.judged(log.asked("Answered?", ["d1"]), "d1")
    learn(log, data)
    (query,) = read_dataset(data, "traffic", spool).unanswerable
    assert query.text == "All?"


def test_feedback_without_reply_uses_latest(data: Path) -> None:
    log = TrafficLog()
    for shown in (["d1", "d2"], ["d2"], ["d1"]):
        log.asked("Which?", shown, key="shop")
    log.judged(None, "d2", query="Which?", key="shop")
    log.judged(None, "d5", query="Which?", key="shop")
    log.judged(None, "d2", query="Never asked?", key="shop")
    result = learn(log, data)
    assert {*rows(data)} == {(name("Which?"), "d2")}
    assert result.left_out == {"not_shown": 1, "unknown_reply": 1}


def test_feedback_without_reply_skips_unusable_replies(data: Path) -> None:
    log = TrafficLog()
    log.asked("Filtered?", ["d1"], key="shop", topk=[], random=[])
    log.asked("Filtered?", ["d1"], key="other")
    log.asked(hashed("Hashed?"), ["d1"], key="shop")
    for query in ("Filtered?", hashed("Hashed?")):
        log.judged(None, "d1", query=query, key="shop")
    log.judged(None, "d1", query="Filtered?", key="other")
    assert learn(log, data).left_out == {"filtered": 1, "hashed": 1}


def test_later_text_identifies_hashed_query(data: Path) -> None:
    log = TrafficLog()
    log.judged(log.asked(hashed("Again?"), ["d1"]), "d1")
    log.asked("Again?", ["d1"])
    assert learn(log, data).left_out == {}
    assert {*rows(data)} == {(name("Again?"), "d1")}


def test_reply_judged_with_other_keys_counts(data: Path) -> None:
    """One key searches, and others send feedback."""
    log = TrafficLog()
    reply = log.asked("Which?", ["d1"], key="site")
    for key in ("one", "two"):
        log.judged(reply, "d1", key=key)
    assert learn(log, data, votes=2).queries == 1
    assert rows(data)[name("Which?"), "d1"][1] >= 1


def test_replies_to_outlying_keys_ignored(data: Path) -> None:
    log = TrafficLog()
    crowd(log)
    for number in range(60):
        reply = log.asked(f"clicked {number}", ["d1", "d2"], key="clicks")
        log.judged(reply, "d1", key="clicks")
    log.judged(reply, "d2", key="key0")
    assert learn(log, data).left_out["outlying_key"] == 61


def test_complete_reply_requires_every_result_judged(data: Path) -> None:
    """A request for more than K results shows as many below them as are missing among them."""
    log = TrafficLog()
    reply = log.asked("Deep?", ["d1", "d2", "d7"], k=9, ranks=[1, 2, 7])
    for document in ("d1", "d2", "d7"):
        log.judged(reply, document, False)
    log.judged(log.asked("Answered?", ["d1"]), "d1")
    assert learn(log, data).left_out == {"no_answer": 3}


LEFT_OUT: dict[str, tuple[Callable[[TrafficLog], None], str]] = {
    "within a filter": (lambda log: log.judged(log.asked("q", ["d1"], topk=[], random=[]), "d1"), "filtered"),
    "another threshold": (lambda log: log.judged(log.asked("q", ["d1"], threshold=0.1), "d1"), "threshold"),
    "grouped": (lambda log: log.judged(log.asked("q", ["d1"], group_by="document"), "d1"), "grouped"),
    "another data set": (lambda log: log.judged(log.asked("q", ["d1"], collection="x"), "d1"), "other_collection"),
    "a judgement of another": (
        lambda log: log.judged(log.asked("q", ["d1"]), "d1", collection="x"),
        "other_collection",
    ),
    "a document that is gone": (lambda log: log.judged(log.asked("q", ["gone"]), "gone"), "unknown_document"),
    "a reply of a lost log": (lambda log: log.judged("f" * 32, "d1"), "unknown_reply"),
    "hashed": (lambda log: log.judged(log.asked(hashed("q"), ["d1"]), "d1"), "hashed"),
    "not shown": (lambda log: log.judged(log.asked("q", ["d1"]), "d2"), "not_shown"),
}


@pytest.mark.parametrize(("add", "reason"), LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_unusable_judgements_counted_by_reason(data: Path, add: Callable[[TrafficLog], None], reason: str) -> None:
    log = TrafficLog()
    add(log)
    with pytest.raises(NothingLearnedError, match="no judgement can be used: 1 "):
        learn(log, data)
    assert not (data / "qrels" / "traffic.tsv").exists()
    log.judged(log.asked("fine", ["d1"]), "d1")
    assert learn(log, data) == TrafficLabels(1, 1, Counter({reason: 1}))


def test_judgements_per_key_are_limited(data: Path) -> None:
    log = TrafficLog()
    for number in range(50):
        log.judged(log.asked(f"query {number}", ["d1"], key="eager"), "d1", key="eager")
    log.judged(log.asked("once", ["d1"], key="other"), "d1", key="other")
    result = learn(log, data, max_by_key=10)
    assert (result.queries, result.left_out) == (11, {"capped": 40})
    assert name("once") in {query for query, _ in rows(data)}


def crowd(log: TrafficLog, keys: int = 8) -> None:
    """Keys that call two of three results relevant, and judge half of what they see."""
    for key in range(keys):
        for number in range(60):
            reply = log.asked(f"query {key} {number}", ["d1", "d2"], key=f"key{key}")
            log.judged(reply, "d1", (number + key) % 3 > 0, key=f"key{key}")


def test_key_that_approves_everything_ignored(data: Path) -> None:
    log = TrafficLog()
    crowd(log)
    for number in range(60):
        log.judged(log.asked(f"clicked {number}", ["d1", "d2"], key="clicks"), "d1", key="clicks")
    assert learn(log, data).left_out["outlying_key"] == 60
    assert not [query for query, _ in rows(data) if query == name("clicked 1")]


def test_key_that_judges_everything_ignored(data: Path) -> None:
    log = TrafficLog()
    crowd(log)
    for number in range(60):
        reply = log.asked(f"bot {number}", ["d1", "d2"], key="bot")
        for document in ("d1", "d2"):
            log.judged(reply, document, number % 3 > 0, key="bot")
    assert learn(log, data).left_out["outlying_key"] == 120


def test_ordinary_keys_are_kept(data: Path) -> None:
    log = TrafficLog()
    crowd(log)
    assert learn(log, data).left_out["outlying_key"] == 0


def test_torn_and_foreign_log_lines_handled(data: Path) -> None:
    log = TrafficLog()
    log.judged(log.asked("q", ["d1"]), "d1")
    path = log.write(data.parent / "log")
    complete = path.read_bytes()
    path.write_bytes(complete + complete.splitlines()[0][:50])
    assert learn_from_traffic([path], data).queries == 1
    before = (data / "qrels" / "traffic.tsv").read_bytes()
    path.write_bytes(complete + b"GET / 200\n")
    with pytest.raises(InputError, match=r"log:3: not JSON"):
        learn_from_traffic([path], data)
    assert (data / "qrels" / "traffic.tsv").read_bytes() == before


@pytest.mark.parametrize("split", ["", "a/b", "../test", "human", "generated"])
def test_split_invalid_or_reserved_refused(data: Path, split: str) -> None:
    log = TrafficLog()
    log.judged(log.asked("q", ["d1"]), "d1")
    before = sorted(data.rglob("*"))
    with pytest.raises(InputError, match="--split"):
        learn(log, data, split=split)
    assert sorted(data.rglob("*")) == before


def test_log_without_judgements_is_refused(data: Path) -> None:
    log = TrafficLog()
    log.asked("q", ["d1"])
    with pytest.raises(InputError, match="holds no judgement; clients send them to /feedback"):
        learn(log, data)


def test_query_called_unanswerable_is_left_out(data: Path) -> None:
    with (data / "queries.jsonl").open("a") as queries:
        queries.write('{"_id": "u1", "text": "Never answered?", "answerable": false}\n')
    log = TrafficLog()
    log.judged(log.asked("Never answered?", ["d1"]), "d1")
    with pytest.raises(InputError, match="1 are about queries that queries.jsonl calls unanswerable"):
        learn(log, data)
    log.judged(log.asked("New?", ["d2"]), "d2")
    result = learn(log, data)
    assert (result.queries, result.left_out["unanswerable"]) == (1, 1)
