"""A query log read back: which queries are the same, and lines that something happened to."""

from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.calibration.replay.log import read_log
from taugate.drift.observations import hashed, judgement_key, query_key
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


def test_judgement_key_matches_service(service: Service, tmp_path: Path) -> None:
    queries = service.queries([START, START + 1])
    judged = service.judged(queries)
    whole = judged[0] | {"query_id": "another", "score": 1, "at": START + 2}
    log = read_log([write(tmp_path / "log", [*queries, *judged, whole])], service.release, 5)
    keys = [judgement_key(line["document_id"], float(line["score"])) for line in [*judged, whole]]
    assert log.judged.key.tolist() == keys


def test_first_judgement_per_query_and_key_counts(service: Service, tmp_path: Path) -> None:
    queries = service.queries([START])
    named = service.judged(queries)[0] | {"query_id": None, "query": "Which?", "document_id": "first"}
    judged = [named, named | {"document_id": "second"}, named | {"key": "other"}, named | {"query": "Another?"}]
    log = read_log([write(tmp_path / "log", [*queries, *judged])], service.release, 5)
    assert log.judged.key.tolist() == 3 * [judgement_key("first", float(named["score"]))]


def test_log_lines_are_sorted_by_time(service: Service, tmp_path: Path) -> None:
    queries = service.queries([START + at for at in (3, 1, 2)])
    judged = service.judged(queries)
    log = read_log([write(tmp_path / "log", judged + queries)], service.release, 5)
    assert log.queries.at.tolist() == log.judged.at.tolist() == [START + at for at in (1, 2, 3)]
    assert log.queries.key.tolist() == [int(queries[row]["query"], 16) for row in (1, 2, 0)]
    assert log.queries.top.tolist() == [queries[row]["topk"] for row in (1, 2, 0)]
    assert log.judged.correct.tolist() == [queries[row]["topk"][0] for row in (1, 2, 0)]


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
