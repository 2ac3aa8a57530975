"""A release over an engine gives the same results, scores, probabilities and documents as in the process."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engines_tests.servers import NAMES, running
from taugate.errors import EngineUnavailable, InputError, ReleaseError
from taugate.release.files import IN_ENGINE
from taugate.retrieval.documents.filters import Filter, Not, OneOf
from taugate.retrieval.engines.engine import EngineAccess, connect
from taugate.retrieval.query import Query
from taugate.retrieval.reader import Release, load
from tests.engine_release import Pair, write_pair
from tests.loopback import HOST, free_port

CATEGORY: Filter = (OneOf.of("category", "dolda-fel"),)


@pytest.fixture(scope="module", params=NAMES)
def pair(request: pytest.FixtureRequest, releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    with running(request.param) as engine:
        made = write_pair(releases, tmp_path_factory.mktemp("pair") / "releases", engine)
        yield made, EngineAccess(connect=lambda kind: engine, seconds=30)


@pytest.fixture(scope="module")
def both(pair: tuple[Pair, EngineAccess]) -> tuple[Release, Release]:
    made, access = pair
    return load(made.folder / made.here), load(made.folder / made.there, engine=access)


def questions(release: Release, **fields: object) -> list[Query]:
    texts = [golden_query.text for golden_query in release.golden]
    return [Query(text, 1 + place % 8, **fields) for place, text in enumerate(texts)]  # type: ignore[arg-type]


def test_release_contains_no_corpus_files(pair: tuple[Pair, EngineAccess]) -> None:
    made, _ = pair
    names = {path.name for path in (made.folder / made.there).rglob("*")}
    assert not names & IN_ENGINE


@pytest.mark.parametrize(
    "fields", [{}, {"threshold": -1.0}, {"filter": CATEGORY}, {"permitted": (Not(CATEGORY),), "min_results": 1}]
)
def test_answers_are_equal(both: tuple[Release, Release], fields: dict) -> None:
    here, there = both
    queries = questions(here, **fields)
    vectors = here.retriever.vectors([query.text for query in queries])
    for one, other in zip(
        here.retriever.answer(queries, vectors), there.retriever.answer(queries, vectors), strict=True
    ):
        assert other.positions.tolist() == one.positions.tolist()
        assert other.scores.tobytes() == one.scores.tobytes()
        assert other.relevance is not None
        assert one.relevance is not None
        np.testing.assert_array_max_ulp(other.relevance, one.relevance, maxulp=16)
        assert (other.calibrated, other.reason, other.considered) == (one.calibrated, one.reason, one.considered)
        assert not one.approximate
        assert other.read(there.documents) == one.read(here.documents)
        assert {*other.documents} == {*other.positions.tolist()}, "they came with the search"


def test_broad_filter_is_approximate(both: tuple[Release, Release]) -> None:
    _, there = both
    query = Query("hidden defects", 3)
    asked = [replace(query, filter=item) for item in (None, CATEGORY, (Not(CATEGORY),), (OneOf.of("category", "?"),))]
    answers = there.retriever.answer(asked, there.retriever.vectors([query.text] * len(asked)))
    assert [answer.approximate for answer in answers][::2] == [False, True]
    assert answers[-1].reason == "no_documents_match_filter"
    assert not answers[-1].approximate, "all of none were looked at"


def test_unknown_field_is_named(both: tuple[Release, Release]) -> None:
    for release in both:
        with pytest.raises(InputError, match="no document has the field colour; the fields are .*category"):
            release.retriever.answer(
                [Query("x", 1, filter=(OneOf.of("colour", "red"),))], release.retriever.vectors(["x"])
            )
        with pytest.raises(InputError, match="no document has the field colour; the fields are .*category"):
            release.fields.check_kinds((OneOf.of("colour", "red"),))


def test_random_documents_score_equally(both: tuple[Release, Release]) -> None:
    here, there = both
    vectors = here.retriever.encode([golden_query.text for golden_query in here.golden])
    positions = np.random.default_rng(3).integers(0, len(here.documents), size=(len(vectors), 4))
    assert there.retriever.index.score(vectors, positions).tobytes() == (
        here.retriever.index.score(vectors, positions).tobytes()
    )


def test_documents_are_read_by_position_and_id(both: tuple[Release, Release]) -> None:
    here, there = both
    assert len(there.documents) == len(here.documents)
    assert [*there.documents] == [*here.documents]
    positions = np.array([7, 0, 7])
    assert there.documents.at(positions) == here.documents.at(positions)
    assert there.documents.at(positions[:0]) == []
    assert there.documents.positions(here.documents[9].id).tolist() == [9]
    with pytest.raises(IndexError):
        there.documents[len(here.documents)]


def test_results_in_engine_are_not_rescored(both: tuple[Release, Release]) -> None:
    here, there = both
    assert [release.retriever.rescores(Query("x", 3)) for release in both] == [True, False]
    with pytest.raises(ValueError, match="cannot be reused"):
        there.retriever.rescore(Query("x", 1), here.retriever.vectors(["x"])[0], np.array([1]))


def test_missing_collection_is_refused(pair: tuple[Pair, EngineAccess]) -> None:
    made, access = pair
    with pytest.raises(InputError, match="TAUGATE_ENGINE_URL is not set"):
        load(made.folder / made.there)
    kind = load(made.folder / made.there, engine=access).manifest.engine.kind  # type: ignore[union-attr]
    url = f"http://{HOST}:{free_port()}" if kind == "milvus" else f"postgresql://{HOST}:{free_port()}/db"
    away = EngineAccess(connect=lambda kind: connect(kind, [url]), opening=4)
    with pytest.raises(EngineUnavailable, match="does not respond in time"):
        load(made.folder / made.there, engine=away)


def test_corpus_file_beside_engine_is_refused(pair: tuple[Pair, EngineAccess], tmp_path: Path) -> None:
    made, access = pair
    (made.folder / made.there / "documents.jsonl").write_bytes(b"{}\n")
    try:
        with pytest.raises(ReleaseError, match=r"documents\.jsonl: not part of this release"):
            load(made.folder / made.there, engine=access)
    finally:
        (made.folder / made.there / "documents.jsonl").unlink()


def test_manifest_with_invalid_fields_is_refused(pair: tuple[Pair, EngineAccess], tmp_path: Path) -> None:
    made, access = pair
    folder = shutil.copytree(made.folder / made.there, tmp_path / made.there)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert manifest["engine"]["fields"] == {"category": ["texts"]}
    for fields, message in (
        (["category"], "not an object of fields"),
        ({"category": ["words"]}, "category: must be a list of"),
    ):
        manifest["engine"]["fields"] = fields
        (folder / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(ReleaseError, match=rf"manifest\.json: engine\.fields: {message}"):
            load(folder, engine=access)
