"""What the sections of the engines' page compute, without an engine."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.engines import tables
from benchmarks.engines.kills import by_second
from benchmarks.engines.releases import Source
from benchmarks.serving.processes import proportional_bytes, resident_bytes
from taugate.registry.catalog import find
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.policy.background import ReadDocuments
from taugate.retrieval.query import Query
from taugate.retrieval.release.reader import load
from tests.faults.load import Told
from tests.service_process import ServiceProcess


def test_seconds_with_the_same_statuses_are_one_row() -> None:
    told = [
        Told(at, 0.1, status, right=status == 200, said="")
        for at, status in [(8.0, 200), (9.5, 200), (10.1, 503), (11.2, 503), (11.3, 503), (12.0, 200), (12.1, 503)]
    ]
    rows = [line.split(" | ") for line in by_second(told, 10.0).splitlines()[2:]]
    assert [(first.strip("| "), last.strip("| ")) for first, last in rows] == [
        ("-2 to 0", "2 × 200"),
        ("0 to 2", "3 × 503"),
        ("2 to 3", "1 × 200, 1 × 503"),
    ]


def test_a_wrong_answer_is_not_counted_as_right() -> None:
    assert "wrong 200, {}" in by_second([Told(1.0, 0.1, 200, right=False, said="{}")], 0.0)


def test_the_command_of_a_section_names_the_engine() -> None:
    arguments = tables.PAGE.parser(None).parse_args(["--engine", "milvus,pgvector", "--switches", "3"])
    for name, command in (
        ("switches", " --engine milvus,pgvector --switches 3"),
        ("memory", " --small 20000 --large 100000"),
    ):
        assert "".join(option.repeated(arguments, name) for option in tables.PAGE.options) == command


def test_a_release_of_the_same_corpus_answers_as_its_source(releases: Path, tmp_path: Path) -> None:
    folder = find(releases)
    source, given = Source(folder), load(folder)
    index = given.retriever.index
    assert isinstance(index, FlatIndex)
    asked = given.retriever.vectors([each.text for each in given.golden])
    lengths = np.array([len(each.encoded_text.encode()) for each in given.documents])
    stored, computed = source.relevance(
        index.vectors, asked, lambda positions: ReadDocuments(index.vectors[positions], lengths[positions])
    )
    np.testing.assert_array_equal(
        stored.background.rows(np.arange(len(index))), computed.background.rows(np.arange(len(index)))
    )
    golden = source.golden(index, given.documents)
    assert [each.documents for each in golden] == [[*each.documents] for each in given.golden]
    name = source.in_process(tmp_path / "r", index, given.manifest.index, folder, golden, stored)
    made = load(tmp_path / "r" / name)
    queries = [Query(each.text, 3) for each in given.golden]
    for one, other in zip(given.retriever.answer(queries, asked), made.retriever.answer(queries, asked), strict=True):
        assert other.positions.tolist() == one.positions.tolist()
        assert other.scores.tobytes() == one.scores.tobytes()


def test_shared_pages_count_once(releases: Path) -> None:
    with ServiceProcess(releases) as service:
        service.ready()
        pid = service.process.pid
        assert 0 < proportional_bytes(pid) <= resident_bytes(pid)


def test_a_process_that_has_ended_has_no_memory() -> None:
    assert proportional_bytes(2**22 + 1) == resident_bytes(2**22 + 1) == 0


@pytest.mark.parametrize("names", ["faiss", "milvus,", ""])
def test_an_engine_that_is_none_is_named(names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUGATE_DATA", "/nowhere")
    monkeypatch.setattr("sys.argv", ["tables", "--engine", names])
    with pytest.raises(SystemExit, match="is none; there are milvus, pgvector"):
        tables.main()


def test_an_environment_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUGATE_DATA", "/nowhere")
    for table, option in (("million", "--service-python"), ("kills", "--milvus-python")):
        monkeypatch.setattr("sys.argv", ["tables", "--tables", table, "--engine", "milvus", option, "/nowhere/python"])
        with pytest.raises(SystemExit, match=f"/nowhere/python: not there; run `make .*`, or give {option}"):
            tables.main()
