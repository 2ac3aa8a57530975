"""Releases of earlier versions: those of schemas that are read serve the same scores, others are refused."""

import itertools
import json
import re
import shutil
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from taugate.cli import main as cli
from taugate.errors import ReleaseError
from taugate.policy.abstention import AnswerScore
from taugate.registry import history, promotion
from taugate.registry.catalog import current_id, find, release_ids
from taugate.registry.erasure import erase
from taugate.release.layout import ABSTENTION, LEXICAL, MANIFEST
from taugate.release.manifest import SCHEMA_VERSION
from taugate.release.records import SCHEMA_2
from taugate.release.verify import verify
from taugate.retrieval import golden
from taugate.retrieval.index.lexical import TYPES, from_sentences, word_reader
from taugate.retrieval.index.words import terms, words
from taugate.retrieval.reader import Release, load
from taugate.storage.tensors import read_tensors, write_tensors
from tests.compatibility.schema_2 import as_schema_2
from tests.compatibility.write import DATA, FOLDER
from tests.prometheus_process import until
from tests.service.process.test_process import refusal
from tests.service_process import ServiceProcess

RELEASES = FOLDER / "releases"
READ = sorted(folder.name for folder in RELEASES.glob(f"schema-[{SCHEMA_2}-{SCHEMA_VERSION}]-*"))
QUESTION = "When does the last tram leave in Graz?"


@pytest.fixture(params=READ)
def releases(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a releases directory of an earlier version, with a current release."""
    copy = shutil.copytree(RELEASES / request.param, tmp_path / "releases")
    if current_id(copy) is None:
        assert cli.main(["release", "promote", release_ids(copy)[0], "--releases", str(copy)]) == 0
    return copy


def test_fixtures_cover_every_kind() -> None:
    assert {"schema-2-baseline", "schema-2-early", "schema-2-everything", "schema-2-last"} <= set(READ)
    manifest = json.loads(next((RELEASES / "schema-2-everything").rglob(MANIFEST)).read_bytes())
    assert (manifest["index"]["kind"], manifest["policy"]["kind"]) == ("hnsw", "relative")
    assert manifest["projection"] is not None
    assert manifest["abstention"] is not None


def test_earlier_release_refuses_as_it_did(releases: Path) -> None:
    """By default, within limits, or nothing: what its manifest says of schema 2."""
    written = json.loads((find(releases) / MANIFEST).read_bytes())
    limits, by_default = written.get("abstention"), written.get("refusal")
    release = load(find(releases))
    rule, record = release.retriever.abstention, release.manifest.refusal
    if limits is None and by_default is None:
        assert rule is None
        return
    assert rule is not None
    assert record is not None
    threshold = (limits["score"], limits["tau"]) if limits else (by_default["score"], by_default["rho"])
    assert (rule.score.name, rule.tau) == record.threshold == threshold
    assert rule.within_filters == record.is_default == (limits is None)
    for kind, questions in record.evidence.items() if by_default else ():
        before = by_default[kind]
        assert (questions.queries, questions.refused) == (before["queries"], before["refused"])
        assert questions.lower == before["lower"]


def test_golden_queries_keep_recorded_scores(releases: Path) -> None:
    release = load(find(releases))
    assert len(release.golden) > 0
    golden.check(release.retriever, release.golden, release.manifest.golden_tolerance)


def test_release_commands_read_earlier_release(releases: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = find(releases).name
    for action, out in (("list", f"* {name}"), ("verify", f"ok {name}"), ("show", "{")):
        assert cli.main(["release", action, "--releases", str(releases)]) == 0
        assert capfd.readouterr().out.startswith(out)
    document = json.loads((DATA / "corpus.jsonl").read_text().splitlines()[0])["_id"]
    assert cli.main(["release", "erase", name, document, "--releases", str(releases)]) == 0
    erased = capfd.readouterr().out.strip()
    assert cli.main(["release", "diff", erased, "--releases", str(releases)]) == 0
    assert cli.main(["release", "promote", erased, "--releases", str(releases)]) == 0
    assert cli.main(["release", "rollback", "--releases", str(releases)]) == 0
    assert current_id(releases) == name


def test_earlier_release_is_served(releases: Path) -> None:
    written = json.loads((find(releases) / MANIFEST).read_bytes())
    with ServiceProcess(releases).ready() as service:
        reply = service.http.post("/search", json={"query": QUESTION, "min_results": 1}).json()
        assert service.http.get("/release").json()["manifest"]["taugate_version"] == written["taugate_version"]
    assert reply["release"] == find(releases).name
    assert reply["results"][0]["id"] == "graz-tram"


def test_calibration_continues_from_earlier_release(
    releases: Path, encoder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = current_id(releases)
    assert cli.main(["calibrate", str(DATA), "--releases", str(releases), "--encoder", str(encoder)]) == 0
    assert load(find(releases)).manifest.parent == before
    if (releases / str(before) / "outcomes.safetensors").exists():
        command = ["calibrate", str(DATA), "--releases", str(releases), "--encoder", str(encoder), "--seed", "1"]
        assert cli.main([*command, "--max-accuracy-drop", "0.5"]) == 0


def test_schema_1_is_refused_with_remedy(capfd: pytest.CaptureFixture[str]) -> None:
    path = RELEASES / "schema-1"
    name = release_ids(path)[0]
    message = f"{path / name / MANIFEST}: schema version 1, this taugate reads 2 and 3; calibrate with this version"
    assert message in refusal("--releases", str(path))
    assert cli.main(["release", "verify", "--releases", str(path)]) == 1
    assert message in capfd.readouterr().err
    assert cli.main(["release", "list", "--releases", str(path)]) == 0
    assert capfd.readouterr().out.startswith(f"* {name}")


def test_later_schema_asks_for_upgrade(tmp_path: Path) -> None:
    """So does the version before, which reads 2, of a release of this one."""
    releases = shutil.copytree(RELEASES / READ[0], tmp_path / "releases")
    path = find(releases) / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"schema_version": SCHEMA_VERSION + 1}))
    message = f"schema version {SCHEMA_VERSION + 1}, this taugate reads 2 and 3; upgrade the services first, then the"
    assert message in refusal("--releases", str(releases))


KEY = "taugate_1Fc0oONh9X40KaRuOIgFuIiJymJCXpUEd3gFz1PCMwQ"  # keys.json has its hash


@pytest.mark.parametrize(
    ("log", "releases"), [("query-log-texts.jsonl", "schema-2-early"), ("query-log-hashes.jsonl", "schema-2-baseline")]
)
def test_earlier_query_log_is_refused(
    log: str, releases: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """An earlier log does not list the shown documents."""
    copy = shutil.copy(FOLDER / log, tmp_path)
    assert cli.main(["drift", "replay", str(copy), "--releases", str(RELEASES / releases), "--json"]) == 2
    assert f"{copy}:1: written by a version before 0.3" in capfd.readouterr().err


def test_earlier_key_file_is_accepted() -> None:
    with ServiceProcess(RELEASES / "schema-2-baseline", TAUGATE_KEYS_FILE=str(FOLDER / "keys.json")).ready() as service:
        request = {"json": {"query": "Who built the old bridge of Riga?"}}
        assert service.http.post("/search", **request).status_code == 401
        bearer = {"Authorization": f"Bearer {KEY}"}
        assert service.http.post("/search", headers=bearer, **request).status_code == 200
        assert service.http.get("/metrics", headers=bearer).status_code == 403, "the key lacks this scope"


def test_earlier_baseline_is_accepted() -> None:
    """A baseline that does not fit would be a warning in the log."""
    releases = RELEASES / "schema-2-baseline"
    with ServiceProcess(releases, TAUGATE_DRIFT_BASELINE=str(releases)).ready() as service:
        metrics = service.http.get("/metrics").text
        lines = [json.loads(line) for line in service.log().splitlines()]
    assert "taugate_drift_baseline 1.0" in metrics
    assert [line for line in lines if line["level"] != "info"] == []


def test_earlier_history_is_continued(tmp_path: Path) -> None:
    copy = shutil.copytree(RELEASES / "schema-2-baseline", tmp_path / "releases")
    (first,) = history.read(copy).events
    assert (first.action, first.release, first.by) == ("promote", find(copy).name, "ops@host")
    assert cli.main(["release", "shadow", "--none", "--releases", str(copy)]) == 0
    assert history.read(copy).events[0] == first


RELEASE = find(FOLDER / "releases" / "schema-2-last")


def _nulls(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_nulls, value.values()))
    return any(map(_nulls, value)) if isinstance(value, list) else value is None


def test_schema_2_survives_conversion_and_back() -> None:
    assert as_schema_2(verify(RELEASE)) == json.loads((RELEASE / MANIFEST).read_bytes())


@pytest.mark.parametrize("name", ["schema-2-baseline", "schema-2-everything", "schema-2-last", "schema-2-words"])
def test_written_manifest_has_no_null(name: str) -> None:
    releases = FOLDER / "releases" / name
    written = verify(find(releases, release_ids(releases)[0])).model_dump()
    assert written["schema_version"] == 3
    assert not _nulls(written)


class OlderService(ServiceProcess):
    """A service that reads the schema before this one."""

    module = "tests.compatibility.older_service"


@pytest.fixture
def two_versions(tmp_path: Path) -> Path:
    """Releases of the older schema, the current one among them, and one of the newer schema."""
    copy = shutil.copytree(FOLDER / "releases" / f"schema-{SCHEMA_VERSION - 1}-last", tmp_path / "releases")
    if current_id(copy) is None:
        promotion.promote(copy, release_ids(copy)[0])
    document = (DATA / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[0].split('"')[3]
    assert cli.main(["release", "erase", find(copy).name, document, "--releases", str(copy)]) == 0
    return copy


@pytest.fixture
def both(two_versions: Path) -> Iterator[tuple[ServiceProcess, ServiceProcess]]:
    with (
        OlderService(two_versions, TAUGATE_RELOAD_SECONDS="0.2") as older,
        ServiceProcess(two_versions, TAUGATE_RELOAD_SECONDS="0.2") as newer,
    ):
        yield older.ready(), newer.ready()


def balanced(services: tuple[ServiceProcess, ServiceProcess], count: int = 4) -> list[str]:
    """Return the release of each reply to searches that a Service sends to its ready pods in turn."""
    pods = itertools.cycle(service for service in services if service.http.get("/readyz").status_code == 200)
    replies = [next(pods).http.post("/search", json={"query": QUESTION, "threshold": -1}) for _ in range(count)]
    assert {reply.status_code for reply in replies} == {200}
    return [reply.json()["release"] for reply in replies]


def served(service: ServiceProcess) -> str:
    (release,) = balanced((service, service), 1)
    return release


def test_rollout_promotion_and_way_back(two_versions: Path, both: tuple[ServiceProcess, ServiceProcess]) -> None:
    older, newer = both
    first = find(two_versions).name
    second = release_ids(two_versions)[-1]
    # Services first: both versions serve the release that is there, with the same scores.
    assert set(balanced(both)) == {first}
    scores = [
        [
            result["score"]
            for result in service.http.post("/search", json={"query": QUESTION, "threshold": -1}).json()["results"]
        ]
        for service in both
    ]
    assert scores[0] == scores[1]
    # A release of the newer version, promoted too early: the older one keeps what it has, and says so.
    promotion.promote(two_versions, second)
    until(lambda: served(newer) == second)
    until(lambda: "taugate_reload_failed 1.0" in older.http.get("/metrics").text)
    assert set(balanced(both)) == {first, second}
    # The way back: the release first, then the service.
    assert cli.main(["release", "rollback", "--releases", str(two_versions)]) == 0
    until(lambda: served(newer) == first)
    until(lambda: "taugate_reload_failed 0.0" in older.http.get("/metrics").text)
    assert set(balanced(both)) == {first}
    assert f"schema version {SCHEMA_VERSION}" in older.log()


def test_older_service_cannot_start_on_newer_release(two_versions: Path) -> None:
    promotion.promote(two_versions, release_ids(two_versions)[-1])
    with OlderService(two_versions) as older:
        assert older.process.wait(timeout=120) == 2
        assert f"schema version {SCHEMA_VERSION}" in older.log()


OLDER = FOLDER / "releases" / "schema-2-words"
FOLDER_OF_RELEASE = OLDER / release_ids(OLDER)[0]
SCORES: dict[str, float] = json.loads((FOLDER / "refusal-scores.json").read_bytes())  # by the version that wrote it
ROWS = {name: read_tensors(FOLDER_OF_RELEASE / ABSTENTION)[name] for name in TYPES}
DOCUMENTS = len(ROWS["documents"]) - 1


def refusal_scores(release: Release) -> list[float]:
    retriever, texts = release.retriever, [*SCORES]
    vectors = retriever.vectors(texts)
    assert retriever.abstention is not None
    return retriever.abstention.score.of(texts, vectors, retriever.index.search(vectors, 5)).tolist()


def test_refusal_scores_equal_those_of_writing_version() -> None:
    assert refusal_scores(load(FOLDER_OF_RELEASE)) == [*SCORES.values()]


def test_erased_release_has_words_in_file_of_index(tmp_path: Path) -> None:
    """Also with the same refusals of queries that neither the erased document nor its words concern."""
    releases = shutil.copytree(OLDER, tmp_path / "releases")
    before = load(FOLDER_OF_RELEASE)
    gone = before.documents[7]
    manifest = erase(releases, FOLDER_OF_RELEASE.name, [gone.id]).manifest
    assert LEXICAL in manifest.files
    after = load(releases / manifest.release_id)
    assert {*read_tensors(releases / manifest.release_id / ABSTENTION)}.isdisjoint(TYPES)
    assert after.retriever.abstention is not None
    words_after = after.retriever.abstention.score.signals.words
    assert words_after is not None
    query, positions = "tram library closed", np.arange(7)  # of the documents before the erased one
    assert before.retriever.abstention is not None
    words_before = before.retriever.abstention.score.signals.words
    assert words_before is not None
    one, other = words_before.match(query, positions), words_after.match(query, positions)
    assert (one.bm25.tolist(), one.idf.tolist()) == (other.bm25.tolist(), other.idf.tolist())
    assert one.best_sentence == other.best_sentence > 0


@pytest.mark.parametrize("text", ["हिन्दी में", "石油危机。", "Straße_1 été", "", "ﬁre\ud800"])
def test_rule_1_splits_as_earlier_versions_did(text: str) -> None:
    assert words(text, 1) == re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold())
    assert len(terms(text, 1)) == len(words(text, 1))


def changed(**arrays: np.ndarray) -> dict[str, np.ndarray]:
    return ROWS | arrays


@pytest.mark.parametrize(
    "rows",
    [
        {name: array for name, array in ROWS.items() if name != "codes"},
        changed(vocabulary=ROWS["vocabulary"][::-1]),
        changed(vocabulary=ROWS["vocabulary"].astype(np.int64)),
        changed(vocabulary=ROWS["vocabulary"][:-1]),
        changed(vocabulary=np.append(ROWS["vocabulary"], np.uint32(0xFFFFFFFF))),
        changed(documents=ROWS["documents"][:-1]),
        changed(documents=ROWS["documents"][::-1]),
        changed(documents=ROWS["documents"] + 1),
        changed(offsets=ROWS["offsets"][:-1]),
        changed(offsets=ROWS["offsets"] * 2),
        changed(offsets=ROWS["offsets"] + 1),
        changed(offsets=ROWS["offsets"].reshape(1, -1)),
        changed(codes=ROWS["codes"] + np.uint32(7)),
        changed(codes=ROWS["codes"][:-1]),
        changed(counts=ROWS["counts"] * np.uint8(0)),
        changed(counts=ROWS["counts"].astype(np.float32)),
    ],
)
def test_modified_rows_are_refused(rows: dict[str, np.ndarray], tmp_path: Path) -> None:
    assert from_sentences(ROWS, DOCUMENTS) is not None
    assert from_sentences(rows, DOCUMENTS) is None
    path = tmp_path / ABSTENTION
    others = {name: array for name, array in read_tensors(FOLDER_OF_RELEASE / ABSTENTION).items() if name not in TYPES}
    write_tensors(path, others | rows)
    with pytest.raises(ReleaseError, match="does not hold the words of these documents; calibrate again"):
        AnswerScore.load(path, "model", 32, word_reader(load(FOLDER_OF_RELEASE).documents))


def test_rows_of_other_corpus_are_refused() -> None:
    assert from_sentences(ROWS, DOCUMENTS + 1) is None
