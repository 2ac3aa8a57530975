"""A calibration with a second stage: what is served, explained, updated and erased is what was measured."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
import zaragoza_construction_faq

from taugate.cli import main as cli
from taugate.data.questions import off_topic_questions
from taugate.errors import ReleaseError
from taugate.registry.catalog import find
from taugate.registry.erasure import erase
from taugate.registry.promotion import promote
from taugate.release import queries
from taugate.release.encoder import Role
from taugate.release.layout import QUESTIONS, RERANKER_FOLDER, TOKEN_VECTORS
from taugate.release.manifest import Manifest
from taugate.release.search_records import read_pairs
from taugate.release.verify import verify_searchable
from taugate.retrieval.documents.filters import OneOf
from taugate.retrieval.engines.engine import EngineAccess
from taugate.retrieval.explanation import explain_stages
from taugate.retrieval.folders import CorpusFolder, RerankerFolder
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from taugate.retrieval.rerank.cross_encoder import CrossEncoder
from taugate.retrieval.rerank.endpoint import reranker_endpoint
from taugate.retrieval.rerank.late_interaction import LateInteraction, TokenEncoder, write_token_vectors
from tests.calibration.commands import Printed
from tests.calibration.update.corpora import mixed_changes, newer
from tests.chunked_release import write_chunked_release
from tests.fake_reranker import write_fake_reranker
from tests.fake_token_encoder import DIMENSION, write_fake_token_encoder

FAQ = zaragoza_construction_faq.load(lang="en")
ANSWERS = {entry["q"]: entry["a"] for entry in FAQ}


def calibrate(sample: Path, encoder: Path, releases: Path, *options: str) -> int:
    return cli.main(["calibrate", str(sample), "--releases", str(releases), "--encoder", str(encoder), *options])


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [entry[field] for entry in FAQ for field in ("q", "a")]
    return write_fake_reranker(tmp_path_factory.mktemp("reranker"), texts)


@pytest.fixture(scope="module")
def two_stages(sample: Path, encoder: Path, reranker: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The current release: the first stage without words, the second one by words."""
    releases = tmp_path_factory.mktemp("two-stages")
    options = ("--rerank", str(reranker), "--lexical", "off", "--max-loss", "0.05")
    assert calibrate(sample, encoder, releases, *options) == 0
    return find(releases)


def manifest_of(releases: Path) -> Manifest:
    return verify_searchable(find(releases))


def test_release_records_both_stages(two_stages: Path) -> None:
    manifest = verify_searchable(two_stages)
    record = manifest.second_stage
    assert record is not None
    assert (record.kind, record.name, record.candidates, record.scores) == (
        "cross-encoder",
        "fake-reranker",
        20,
        "similarity",
    )
    assert manifest.scorer.sha256 == record.sha256
    assert manifest.first_stage.policy == record.first.policy != manifest.policy
    assert {"reranker/model.onnx", "reranker/pairs.json", "first-stage/relevance.safetensors"} <= {*manifest.files}
    assert manifest.gate[-1].kind == "rerank"


def test_served_scores_are_those_of_the_calibration(two_stages: Path) -> None:
    release = load(two_stages)
    assert release.retriever.second is not None
    queries = [Query(entry["q"], 5) for entry in FAQ]
    answers = release.retriever.search(queries)
    assert {answer.stage for answer in answers} == {"second"}
    served = np.sort([answer.best_score for answer in answers])
    calibrated = np.concatenate([release.reference.top[:, 0]])
    assert np.isin(calibrated.round(5), served.astype(np.float32).round(5)).all()
    kept = [position for answer in answers for position in answer.positions.tolist()]
    assert kept
    assert all(answer.calibrated for answer in answers)


def test_first_stage_answers_with_its_own_threshold_when_no_time_is_left(two_stages: Path) -> None:
    retriever = load(two_stages).retriever
    assert retriever.second is not None
    query = Query(FAQ[3]["q"], 5, threshold=0.99)
    vectors = retriever.embed(retriever.tokens([query.text]))
    stages: list[str] = []
    (late,) = retriever.answer([query], vectors, lambda stage, *_: stages.append(stage), deadlines=[0.0])
    assert stages == ["search", "filter"], "it does not search for candidates that nobody scores"
    (first,) = replace(retriever, second=None).answer([Query(query.text, 5)], vectors)
    assert (late.stage, late.skipped, late.threshold, late.policy) == (
        "first",
        "deadline",
        first.threshold,
        first.policy,
    )
    np.testing.assert_array_equal(late.scores, first.scores)
    np.testing.assert_array_equal(late.positions, first.positions)
    assert late.uncut is None
    assert late.first_scores is None


def test_explanation_has_both_ranks(two_stages: Path) -> None:
    release = load(two_stages)
    entry = FAQ[0]
    explained = explain_stages(release.retriever, release.documents, Query(entry["q"], 5), entry["id"])
    (answer,) = release.retriever.search([Query(entry["q"], 5)])
    assert explained.kept == (entry["id"] in [document.id for document in answer.read(release.documents)])
    assert explained.first_stage_rank is not None
    assert explained.rank is not None
    assert explained.score == pytest.approx(answer.scores[explained.rank - 1])
    far = explain_stages(release.retriever, release.documents, Query(entry["q"], 5), FAQ[-1]["id"])
    assert (far.kept, far.rule) == (False, "rank")


def test_explanation_agrees_with_search_when_reranker_is_paused(two_stages: Path) -> None:
    release = load(two_stages)
    assert release.retriever.second is not None
    release.retriever.second._pause = 1e9  # all searches are in this pause
    release.retriever.second.pause()
    release.retriever.second._paused_until = float("inf")
    for entry in FAQ[:5]:
        query = Query(entry["q"], 5, threshold=0.999)  # meant for the second stage's scores
        (answer,) = release.retriever.search([query])
        shown = {document.id for document in answer.read(release.documents)}
        assert (answer.stage, answer.threshold) == ("first", release.manifest.first_stage.policy.tau)
        for name in [*shown, entry["id"]]:
            explained = explain_stages(release.retriever, release.documents, query, name)
            assert (explained.kept, explained.threshold) == (name in shown, pytest.approx(answer.threshold))


def test_explanation_of_chunks_agrees_with_search(sample: Path, encoder: Path, reranker: Path, tmp_path: Path) -> None:
    folder = write_chunked_release(sample, encoder, tmp_path, "--rerank", str(reranker), "--lexical", "off")
    release = load(find(folder))
    for entry in FAQ[:6]:
        for query in (Query(entry["q"], 5), Query(entry["q"], 5, group_by="document"), Query(entry["q"], 30)):
            (answer,) = release.retriever.search([query])
            found = answer.read(release.documents)
            ranks = {document.id: rank for document, rank in zip(found, answer.ranks.tolist(), strict=True)}
            parents = {document.document_id for document in found}
            for name in [*ranks, *parents, entry["id"]]:
                explained = explain_stages(release.retriever, release.documents, query, name)
                assert explained.kept == (name in ranks or name in parents)
                assert not explained.kept or explained.rank == ranks[str(explained.id)]


def test_damaged_reranker_is_refused(two_stages: Path) -> None:
    path = two_stages / "reranker" / "tokenizer.json"
    before = path.read_bytes()
    try:
        path.write_bytes(before + b" ")
        with pytest.raises(ReleaseError, match=r"reranker/tokenizer\.json"):
            load(two_stages)
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize(("kind", "described"), [("two_stages", {"policy"}), ("late", set())])
def test_release_without_some_documents_keeps_both_thresholds_and_scores(
    kind: str, described: set[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    two_stages: Path = request.getfixturevalue(kind)
    before = load(two_stages)
    gone = [pair.document for pair in read_pairs(two_stages / "reranker" / "pairs.json")[:2]]
    created = erase(two_stages.parent, two_stages.name, gone).manifest
    after = load(two_stages.parent / created.release_id)
    assert {*gone}.isdisjoint(document.id for document in after.documents)
    known = read_pairs(two_stages.parent / created.release_id / "reranker" / "pairs.json")
    assert len(known) == 2
    assert {*gone}.isdisjoint(pair.document for pair in known)
    changed = {name for name in Manifest.model_fields if getattr(created, name) != getattr(before.manifest, name)}
    copy = shutil.copytree(two_stages.parent, tmp_path / "copy")
    assert promote(copy, created.release_id).release_id == created.release_id
    withdrawn = {"withdrawn", "calibration", "refusal", "summary", "second_stage"}
    assert (
        changed == {"release_id", "created_at", "parent", "data", "index", "files", "erasure"} | withdrawn | described
    )
    assert {*created.files} == {*before.manifest.files} - {"questions.jsonl"}
    queries = [Query(entry["q"], 5) for entry in FAQ if entry["id"] not in gone]
    pairs = zip(before.retriever.search(queries), after.retriever.search(queries), strict=True)
    same = 0
    for old, new in pairs:
        assert (new.stage, new.threshold) == ("second", old.threshold)
        scores = dict(zip((document.id for document in old.read(before.documents)), old.scores.tolist(), strict=True))
        kept = zip((document.id for document in new.read(after.documents)), new.scores.tolist(), strict=True)
        for name, score in kept:
            assert name not in gone
            same += scores.get(name) == pytest.approx(score, abs=1e-6)
    assert same > len(queries) / 2


def test_update_keeps_both_thresholds_and_scores_only_new_texts_again(
    two_stages: Path, sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    releases = tmp_path / "releases"
    shutil.copytree(two_stages.parent, releases)
    before, scored = load(two_stages), []
    score = CrossEncoder.score

    def counted(self: CrossEncoder, query: str, texts: list[str], *more: float | None) -> object:
        scored.append(len(texts))
        return score(self, query, texts, *more)

    monkeypatch.setattr(CrossEncoder, "score", counted)
    data = newer(sample, tmp_path / "newer", mixed_changes)
    assert cli.main(["update", str(data), "--releases", str(releases), "--verbose"]) == 0
    assert "the first stage's own threshold still holds" in capsys.readouterr().err
    manifest = manifest_of(releases)
    record, parent = manifest.second_stage, before.manifest.second_stage
    assert record is not None
    assert parent is not None
    assert (manifest.policy, record.first.policy, record.sha256) == (
        before.manifest.policy,
        parent.first.policy,
        parent.sha256,
    )
    assert manifest.update is not None
    assert manifest.update.holds
    assert manifest.data.documents == before.manifest.data.documents + 5
    entry = FAQ[3]
    old, new = (release.retriever.search([Query(entry["q"], 5)])[0] for release in (before, load(find(releases))))
    assert (new.stage, new.threshold) == ("second", old.threshold)
    assert new.best_score == pytest.approx(old.best_score, abs=1e-6)
    again = sum(scored) - 20 * (len(FAQ) + len(off_topic_questions(entry["q"] for entry in FAQ)))
    assert again < 3 * len(FAQ), "a random document, perhaps a missed answer, and old candidates that are new no more"


def test_update_encodes_tokens_of_new_texts_alone(
    late: Path, sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases, encoded = shutil.copytree(late.parent, tmp_path / "releases"), []
    encode = TokenEncoder.encode

    def counted(self: TokenEncoder, texts: list[str], role: Role) -> object:
        encoded.extend(texts if role == "document" else ())
        return encode(self, texts, role)

    monkeypatch.setattr(TokenEncoder, "encode", counted)
    data = newer(sample, tmp_path / "newer", mixed_changes)
    assert cli.main(["update", str(data), "--releases", str(releases)]) == 0
    assert 0 < len(encoded) < 50
    before, after = load(late), load(find(releases))
    entry = FAQ[3]
    old, new = (release.retriever.search([Query(entry["q"], 5)])[0] for release in (before, after))
    assert (new.stage, new.threshold) == ("second", old.threshold)
    assert new.best_score == pytest.approx(old.best_score, abs=1e-6)
    record = after.manifest.second_stage
    assert record is not None
    assert record.token_vectors != (before.manifest.second_stage or record).token_vectors


def test_same_input_has_the_same_digest(
    two_stages: Path, sample: Path, encoder: Path, reranker: Path, tmp_path: Path
) -> None:
    options = ("--rerank", str(reranker), "--lexical", "off", "--max-loss", "0.05")
    assert calibrate(sample, encoder, tmp_path, *options) == 0
    assert find(tmp_path).name.rpartition("-")[2] == two_stages.name.rpartition("-")[2]


@pytest.fixture(scope="module")
def late(sample: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The current release, whose second stage compares token vectors."""
    texts = [entry[field] for entry in FAQ for field in ("q", "a")]
    model = write_fake_token_encoder(tmp_path_factory.mktemp("late-model"), texts)
    releases = tmp_path_factory.mktemp("late")
    assert calibrate(sample, encoder, releases, "--rerank", str(model), "--lexical", "off") == 0
    return find(releases)


def test_release_with_late_interaction_serves_the_scores_of_its_calibration(late: Path) -> None:
    release = load(late)
    record, second = release.manifest.second_stage, release.retriever.second
    assert record is not None
    assert record.token_vectors is not None
    assert second is not None
    assert (record.kind, record.scores, record.token_vectors.dimension) == ("late-interaction", "similarity", DIMENSION)
    stored = (late / "reranker" / "token-vectors.safetensors").stat().st_size
    assert record.token_vectors.bytes_per_passage == pytest.approx(stored / len(release.documents), rel=0.01)
    assert isinstance(second.reranker, LateInteraction)
    answers = release.retriever.search([Query(entry["q"], 5) for entry in FAQ])
    assert {answer.stage for answer in answers} == {"second"}
    served = np.array([answer.best_score for answer in answers], np.float32)
    assert np.isin(release.reference.top[:, 0].round(5), served.round(5)).all()
    assert np.median(served) > 0.5  # most words of a question are in its answer, or near to one
    explained = explain_stages(release.retriever, release.documents, Query(FAQ[0]["q"], 5), FAQ[0]["id"])
    assert explained.first_stage_rank is not None


def test_token_vectors_of_other_documents_are_refused(late: Path, tmp_path: Path) -> None:
    release = load(late)
    assert release.retriever.second is not None
    reranker = release.retriever.second.reranker
    assert isinstance(reranker, LateInteraction)
    copy = shutil.copytree(late, tmp_path / late.name)
    write_token_vectors(copy / "reranker" / TOKEN_VECTORS, [reranker.vectors[0]])
    with pytest.raises(ReleaseError, match=TOKEN_VECTORS):
        load(copy)  # by its digest
    corpus = CorpusFolder(copy).open(release.manifest, EngineAccess())
    with pytest.raises(ReleaseError, match="not of the documents"):
        RerankerFolder(copy / RERANKER_FOLDER).open(release.manifest, corpus, 1, reranker_endpoint)


def test_fewest_candidates_that_are_as_good_are_used(
    reranker: Path, sample: Path, encoder: Path, tmp_path: Path
) -> None:
    options = ("--rerank", str(reranker), "--lexical", "off", "--rerank-candidates", "auto", "--margin", "0.02")
    assert calibrate(sample, encoder, tmp_path, *options) == 0
    manifest = manifest_of(tmp_path)
    *judged, used = manifest.gate
    assert manifest.second_stage is not None
    assert used.candidate == f"second stage fake-reranker, {manifest.second_stage.candidates} candidates"
    sizes = [int(record.candidate.split()[-2]) for record in judged]
    assert sizes == [20, 10][: len(sizes)]
    assert [record.admitted for record in judged[:-1]] == [True] * (len(judged) - 1)
    assert manifest.second_stage.candidates == min(
        [50, *(size for size, record in zip(sizes, judged, strict=True) if record.admitted)]
    )


@pytest.mark.parametrize("more", [(), pytest.param(("--guarantee", "expected-loss"), marks=pytest.mark.slow)])
def test_policy_probability_is_certified_on_the_second_stage(
    sample: Path, encoder: Path, reranker: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    options = ("--rerank", str(reranker), "--max-loss", "0.1", "--policy", "probability", *more)
    assert calibrate(sample, encoder, tmp_path, *options) == 0
    release = find(tmp_path)
    listed = [orjson.loads(line) for line in queries.read_calibration_questions(release / QUESTIONS)]
    manifest, served = manifest_of(tmp_path), load(release).retriever
    assert manifest.policy.kind == "probability"
    off_topic = [question for question in listed if question["kind"] == "off_topic"]
    answers = served.search([Query(question["text"], 5, min_results=5) for question in off_topic])
    for question, answer in zip(off_topic, answers, strict=True):
        np.testing.assert_allclose(question["values"], answer.relevance, atol=1e-6)
    (empty,) = served.search([Query("roof", 5, filter=(OneOf.of("category", "no such category"),))])
    assert (list(empty.positions), empty.stage) == ([], "second")
