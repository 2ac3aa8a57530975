"""Words that only callers sent are in nothing that the service writes, unless the query log is to hold texts.

`make privacy` does the same with more words.
"""

import base64
from pathlib import Path

import numpy as np
import pytest

from taugate.release.layout import SHADOW
from taugate.service.drift.worker_store import FILE
from tests.service.conftest import Two
from tests.service.privacy import PLACES, Words, Written, observe

WORDS = [Words.draw(np.random.default_rng(number)) for number in range(2)]


@pytest.fixture
def shadowed(two: Two) -> Path:
    (two.folder / SHADOW).write_text(f"{two.new}\n")
    return two.folder


@pytest.mark.slow
def test_no_output_contains_query_texts(shadowed: Path, tmp_path: Path) -> None:
    (work := tmp_path / "work").mkdir()
    written = observe(shadowed, work, WORDS)
    assert written.leaks(WORDS) == []
    names = written.sources.keys()
    for expected in ("log/queries.jsonl", "log of the service", "commands to Redis", "traces", "/metrics"):
        assert written.sources[expected], expected
    assert any(name.endswith(FILE) for name in names), "what workers share"


@pytest.mark.slow
def test_query_log_contains_texts_if_set(shadowed: Path, tmp_path: Path) -> None:
    """And nothing else does: the search finds what is there."""
    (work := tmp_path / "work").mkdir()
    found = observe(shadowed, work, WORDS, TAUGATE_QUERY_LOG_TEXTS="true").leaks(WORDS)
    assert {each.source for each in found if each.place == "query"} == {"log/queries.jsonl"}


@pytest.mark.parametrize(
    "written",
    [
        lambda word: word.encode(),
        lambda word: word.upper().encode(),
        lambda word: f'{{"query": "a {word}!"}}'.encode("utf-16-le"),
        lambda word: f"a {word}".encode().hex().encode(),
        lambda word: word[::-1].encode(),
        *(
            lambda word, before=before: base64.b64encode(f"{before}{word} and more".encode())
            for before in ("", "a", "ab")
        ),
    ],
)
def test_leaks_are_found_in_every_encoding(written: object) -> None:
    assert callable(written)
    words = WORDS[0]
    for place in PLACES:
        sources = Written({"file": b"before " + written(words[place]) + b" after"})
        assert {each.place for each in sources.leaks([words])} == {place}
    assert Written({"file": b"nothing"}).leaks(WORDS) == []
