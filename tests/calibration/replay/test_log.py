"""A query log read back: which queries are the same, and lines that something happened to."""

from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.calibration.replay import read_log
from taugate.drift.observations import hashed, query_key
from tests.calibration.replay.records import START, Service, write


def test_hashed_query_matches_text(service: Service, tmp_path: Path) -> None:
    texts = ["Behöver jag bygglov?", "", "  Behöver jag bygglov?", "ABCDEF0123456789", "0123", "Behöver jag bygglov?"]
    records = [service.queries([START + at])[0] for at in range(len(texts))]
    logs = []
    for name, form in (("texts", str), ("hashes", hashed)):
        written = [record | {"query": form(text)} for record, text in zip(records, texts, strict=True)]
        path = write(tmp_path / name, written)
        logs.append(read_log([path], service.release, 5).queries)
    assert logs[0].key.tolist() == logs[1].key.tolist() == [query_key(text) for text in texts]
    assert len({*logs[0].key.tolist()}) == 5


def test_replies_are_decided_as_in_the_service(service: Service, tmp_path: Path) -> None:
    """By one relevant result, or by all that are kept; what is not comparable, or of an old log, says nothing."""
    queries = service.queries([START])
    no, other = {"relevant": False, "document_id": "first"}, {"relevant": False, "document_id": "second"}
    named = {"query_id": None, "query": "Which?", "query_hash": hashed("Which?")}

    def judged(**fields: object) -> dict:
        return service.judged(queries, **fields)[0]

    lines = [
        *(judged(query_id="none", **each) for each in (no, no, other, {})),
        *(judged(query_id="one", **each) for each in (no, {}, other)),
        judged(query_id="undecided", **no),
        judged(query_id="explored", kept=False),
        judged(query_id="filtered", not_comparable="filtered"),
        {name: value for name, value in judged(query_id="old").items() if name not in {"kept", "of", "query_hash"}},
        *(judged(**named, **each) for each in (no, {"key": "other"}, other)),
    ]
    log = read_log([write(tmp_path / "log", [*queries, *lines])], service.release, 5)
    assert log.judged.relevant.tolist() == [0, 1, 1, 0]
    asked = int(queries[0]["query"], 16)
    assert log.judged.key.tolist() == [asked, asked, query_key("Which?"), query_key("Which?")]


def test_log_lines_are_sorted_by_time(service: Service, tmp_path: Path) -> None:
    queries = service.queries([START + at for at in (3, 1, 2)])
    judged = service.judged(queries)
    log = read_log([write(tmp_path / "log", judged + queries)], service.release, 5)
    assert log.queries.at.tolist() == log.judged.at.tolist() == [START + at for at in (1, 2, 3)]
    assert log.queries.key.tolist() == [int(queries[row]["query"], 16) for row in (1, 2, 0)]
    assert log.queries.top.tolist() == [queries[row]["topk"] for row in (1, 2, 0)]
    assert log.judged.key.tolist() == log.queries.key.tolist()


def without(name: str) -> Callable[[dict], dict]:
    return lambda line: {field: line[field] for field in line if field != name}


QUERIES: dict[str, tuple[Callable[[dict], object], str]] = {
    "no time": (without("at"), '"at": field required'),
    "time as text": (lambda line: line | {"at": "noon"}, '"at": input should be a valid number'),
    "before 1970": (lambda line: line | {"at": -1}, '"at": input should be greater than or equal to 0'),
    "after the year 9999": (lambda line: line | {"at": 1e30}, '"at": input should be less than'),
    "no query": (without("query"), '"query": field required'),
    "a query that is no text": (lambda line: line | {"query": 7}, '"query": input should be a valid string'),
    "more kept than there are": (lambda line: line | {"kept": 6}, '"kept": 6 of 5 results'),
    "no similarities": (lambda line: line | {"topk": None}, '"topk": input should be a valid list'),
    "a similarity that is none": (
        lambda line: line | {"topk": [*line["topk"][:-1], "x"]},
        '"topk.4": input should be a valid number',
    ),
    "beyond float32": (lambda line: line | {"topk": [1e300, *line["topk"][1:]]}, '"topk.0": input should be less than'),
    "another K": (lambda line: line | {"topk": line["topk"][:3]}, "3 and 4 similarities"),
    "no random documents": (lambda line: line | {"random": []}, "5 and 0 similarities"),
    "fewer random documents": (lambda line: line | {"random": [0.1]}, "5 and 1 similarities"),
    "a list": (lambda line: [1, 2], "not a JSON object"),
}
JUDGEMENTS: dict[str, tuple[Callable[[dict], object], str]] = {
    "no document": (without("document_id"), '"document_id": field required'),
    "no similarity": (lambda line: line | {"score": None}, '"score": input should be a valid number'),
}


@pytest.mark.parametrize(
    ("judged", "change", "said"),
    [
        *(pytest.param(False, *case, id=name) for name, case in QUERIES.items()),
        *(pytest.param(True, *case, id=f"judgement: {name}") for name, case in JUDGEMENTS.items()),
    ],
)
def test_invalid_log_line_is_rejected(
    service: Service,
    tmp_path: Path,
    refused: Callable[..., str],
    judged: bool,
    change: Callable[[dict], dict],
    said: str,
) -> None:
    queries = service.queries([START + at for at in range(3)])
    changed = (service.judged(queries) if judged else queries)[2]
    log = write(tmp_path / "queries.log", [*queries, change(changed)])
    error = refused("replay", log)
    assert f"{log}:4: " in error
    assert said in error
    assert [path.name for path in tmp_path.iterdir()] == ["queries.log"]


def test_missing_or_empty_log_is_rejected(tmp_path: Path, refused: Callable[..., str]) -> None:
    missing = tmp_path / "nothing.log"
    assert "nothing.log: no such file; the service writes one if TAUGATE_QUERY_LOG names it" in refused(
        "replay", missing
    )
    assert "empty.log: no query" in refused("replay", write(tmp_path / "empty.log", []))
