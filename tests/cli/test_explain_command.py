"""`taugate explain` prints the reason, and ends with 2 and one sentence where it cannot."""

import json
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.registry.catalog import find
from taugate.retrieval.explanation import explain
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from tests.chunked_release import write_chunked_release

QUERY = "What does a building permit cost?"


def run(*arguments: object) -> int:
    return cli.main(["explain", *map(str, arguments)])


def test_explain_prints_rank_and_reason(releases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release = load(find(releases), 1)
    for position in (0, 100, 400):
        name = release.documents[position].id
        expected = explain(release.retriever, release.documents, Query(QUERY, 5), name)
        assert run(QUERY, name, "--releases", releases, "--json") == 0
        printed = json.loads(capsys.readouterr().out)
        assert (printed["rank"], printed["score"], printed["why"]) == (expected.rank, expected.score, expected.why)
        assert (printed["release"], printed["policy"]) == (release.manifest.release_id, "similarity")
        assert run(QUERY, name, "--releases", releases, "--release", release.manifest.release_id) == 0
        out, error = capsys.readouterr()
        assert out == f"{expected.why}\n"
        assert ["rank", str(expected.rank), "of", "503"] in [line.split() for line in error.splitlines()]


def test_chunked_document_names_best_chunk(
    sample: Path, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    releases = write_chunked_release(sample, encoder, tmp_path)
    parent = next(each.parent for each in load(find(releases), 1).documents if each.parent)
    capsys.readouterr()
    assert run(QUERY, parent, "--releases", releases) == 0
    (document, *_) = capsys.readouterr().err.splitlines()
    assert " ".join(document.split()).startswith(f"document {parent}, by its chunk {parent}#")


@pytest.mark.parametrize(
    ("query", "document", "message"),
    [
        (QUERY, "nowhere", "the release has no document with the id 'nowhere'"),
        (" ", "nowhere", "QUERY is blank; give the text to search for"),
        ("\u200b\u2800", "nowhere", "QUERY is blank; give the text to search for"),
    ],
)
def test_unknown_document_is_input_error(
    releases: Path, capsys: pytest.CaptureFixture[str], query: str, document: str, message: str
) -> None:
    assert run(query, document, "--releases", releases) == 2
    out, error = capsys.readouterr()
    assert (out, error) == ("", f"taugate: {message}\n")


def test_directory_without_releases_is_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(QUERY, "any", "--releases", tmp_path) == 2
    assert capsys.readouterr().out == ""
