"""A calibration over an engine finds what one in the process finds, and uploads once; servers are real."""

import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from engines_tests.calibration.comparing import close
from engines_tests.calibration.conftest import OPTIONS as LOSS
from engines_tests.calibration.conftest import TEXTS, with_milvus_lite
from taugate.calibration.acceptance import accept
from taugate.calibration.encoding import sharded_vectors
from taugate.calibration.engines import ProposedIndex
from taugate.calibration.progress import Job
from taugate.cli import main as cli
from taugate.data.beir import read_dataset
from taugate.errors import ReleaseError
from taugate.policy.relevance import ComputedBackground, Relevance
from taugate.registry.catalog import current_id, release_ids
from taugate.registry.history import calibration_lock
from taugate.registry.prune import prune_collections
from taugate.release.engine import EngineKind, EngineRecord
from taugate.release.layout import ENCODER_FOLDER, LEXICAL, OUTCOMES, REFERENCE, RELEVANCE
from taugate.release.queries import Outcomes, Reference
from taugate.release.verify import verify_searchable
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.engines.engine import Engine, field_types
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from tests.calibration.commands import Capture, arguments, refusal, small
from tests.calibration.update.corpora import manifest_of
from tests.retrieval.engines.corpus import soon

OPTIONS = (*LOSS, "--no-promote")


@pytest.fixture(scope="module")
def first(data: tuple[Path, Path], kind: EngineKind, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A releases directory whose one release is over the engine, and not current."""
    releases = tmp_path_factory.mktemp("first") / "r"
    assert cli.main(arguments(data[0], releases, data[1], *OPTIONS, "--engine", kind)) == 0
    return releases


@pytest.fixture
def released(first: Path, tmp_path: Path) -> Path:
    """A copy of that directory."""
    return shutil.copytree(first, tmp_path / "r")


@with_milvus_lite
@pytest.mark.parametrize("lexical", ["auto", "0.5"])
def test_engine_release_matches_in_process(  # noqa: PLR0917 (two data folders, the engine and four fixtures)
    lexical: str,
    data: tuple[Path, Path],
    kind: EngineKind,
    engine: Engine,
    tmp_path: Path,
    run: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accept, "BREADTHS", (256,))  # all documents, so that no graph leaves one out
    options = (*OPTIONS, "--lexical", lexical)
    code, here, _ = run(data[0], tmp_path / "here", data[1], *options)
    again, there, said = run(data[0], tmp_path / "there", data[1], *options, "--engine", kind)
    assert (code, again) == (0, 0), said

    record = EngineRecord.model_validate(there["engine"])
    assert engine.names(soon()) == [record.collection]
    assert f"uploading {TEXTS} documents to {record.collection}" in said or "; nothing to upload" in said
    assert (record.kind, record.rows) == (kind, TEXTS)
    assert there["engine"]["fields"] == {"lang": ["texts"], "tags": ["texts", "lists"], "year": ["numbers"]}
    assert there["index"]["recall"] == 1
    assert (there["index"]["kind"], there["index"]["breadth"]) == ("hnsw", record.breadth)
    *judged, of_engine = there["gate"]
    assert (of_engine["kind"], of_engine["admitted"]) == ("engine", True)
    assert judged == here["gate"], "the same weights of the lexical share, judged by the same results"
    assert there.get("lexical") == here.get("lexical")
    assert ("lexical" in there) == (lexical != "auto")
    assert "engine" not in here

    for name in ("policy", "metrics", "alternatives", "relevance", "evidence", "calibration", "drift", "refusal"):
        assert close(there[name], here[name]), name
    assert there["policy"]["tau"] == here["policy"]["tau"]

    releases = [tmp_path / where / each["release_id"] for where, each in (("here", here), ("there", there))]
    manifests = [verify_searchable(each) for each in releases]
    before, after = (Reference.load(each / REFERENCE) for each in releases)
    assert after.top.tobytes() == before.top.tobytes()
    assert after.random.tobytes() == before.random.tobytes()
    kept, kept_there = (Outcomes.load(each / OUTCOMES, 4).kept for each in releases)
    assert (kept == kept_there).all()
    stored = {path.name for path in releases[1].iterdir()}
    assert (LEXICAL in stored) == ("lexical" in there)
    assert not stored & {"index.faiss", "documents.jsonl", "documents.safetensors", "metadata.safetensors"}
    assert {"relevance.safetensors", "golden.jsonl", ENCODER_FOLDER} <= stored
    relevance = Relevance.load(releases[1] / RELEVANCE, manifests[1].encoder.dimension, None)
    assert isinstance(relevance.background, ComputedBackground)

    one, other = (load(each) for each in releases)
    assert one.metadata.columns and not other.metadata.columns
    assert field_types(record) == one.metadata.types
    asked = [Query(each.text, 4) for each in one.golden]
    vectors = one.retriever.vectors([each.text for each in asked])
    answers = one.retriever.answer(asked, vectors), other.retriever.answer(asked, vectors)
    for answer, answer_there in zip(*answers, strict=True):
        assert answer_there.positions.tolist() == answer.positions.tolist()
        assert answer_there.scores.tobytes() == answer.scores.tobytes()
        assert answer.relevance is not None
        np.testing.assert_array_max_ulp(answer_there.relevance, answer.relevance, maxulp=64)
        assert answer_there.threshold == answer.threshold
    one.close()
    other.close()


@pytest.mark.slow
def test_new_threshold_reuses_collection(
    data: tuple[Path, Path], kind: EngineKind, engine: Engine, released: Path, run: Capture
) -> None:
    (name,) = release_ids(released)
    code, second, said = run(data[0], released, data[1], "--k", "3", "--no-promote", "--engine", kind)
    assert code == 0
    assert "; nothing to upload" in said
    assert manifest_of(released, name)["engine"]["shards"] == second["engine"]["shards"]
    assert len(engine.names(soon())) == 1


@pytest.mark.slow
def test_interrupted_upload_is_repeated(
    data: tuple[Path, Path], kind: EngineKind, engine: Engine, released: Path, run: Capture
) -> None:
    (first,) = release_ids(released)
    (name,) = engine.names(soon())
    engine.drop(name, soon())
    engine.create(name, 128, soon())  # and nothing more
    code, second, said = run(data[0], released, data[1], *OPTIONS, "--engine", kind)
    assert code == 0
    assert "an earlier upload was interrupted" in said
    assert second["policy"] == manifest_of(released, first)["policy"]


@pytest.mark.parametrize(
    "options",
    [
        ("--index", "hnsw"),
        ("--precision", "int8"),
        ("--projection", "auto"),
        ("--strata", "metadata.lang", "--max-loss", "0.1"),
        ("--max-loss", "0.1", "--max-answered", "0.2"),
    ],
)
def test_unsupported_engine_options_are_rejected(
    data: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    command = arguments(data[0], tmp_path / "r", data[1], "--engine", "pgvector", *options)
    said = refusal(command, tmp_path / "r", capfd)
    assert "cannot be combined with --engine pgvector yet" in said
    assert any(option in said for option in options if option.startswith("--"))


def test_engine_without_url_is_rejected(
    data: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TAUGATE_ENGINE_URL", raising=False)
    command = arguments(data[0], tmp_path / "r", data[1], "--engine", "milvus")
    assert "TAUGATE_ENGINE_URL is not set" in refusal(command, tmp_path / "r", capfd)
    command = arguments(data[0], tmp_path / "r", data[1], "--embeddings", "somewhere")
    assert "needs an --engine such as milvus or pgvector" in refusal(command, tmp_path / "r", capfd)


def test_unreachable_engine_writes_no_release(
    data: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAUGATE_ENGINE_URL", "postgresql://nobody@127.0.0.1:1/none")
    command = arguments(data[0], tmp_path / "r", data[1], "--engine", "pgvector")
    assert "does not respond in time" in refusal(command, tmp_path / "r", capfd, code=1)
    assert not (tmp_path / "r").exists() or not release_ids(tmp_path / "r")


@pytest.mark.slow
def test_promotion_requires_collection(
    data: tuple[Path, Path], kind: EngineKind, engine: Engine, released: Path, run: Capture
) -> None:
    releases = released
    (name,) = release_ids(releases)
    record = EngineRecord.model_validate(manifest_of(releases, name)["engine"])
    assert cli.main(["release", "verify", "--releases", str(releases)]) == 0
    assert cli.main(["release", "list", "--releases", str(releases)]) == 0
    engine.drop(record.collection, soon())
    run.capfd.readouterr()
    for code, command in ((2, ["promote", name]), (1, ["verify"])):
        assert cli.main(["release", command[0], "--releases", str(releases), *command[1:]]) == code
        assert f"the engine has no collection {record.collection}" in run.capfd.readouterr().err
    assert current_id(releases) is None
    run(data[0], releases, data[1], *OPTIONS, "--engine", kind)
    assert cli.main(["release", "promote", "--releases", str(releases), name]) == 0
    assert current_id(releases) == name
    run.capfd.readouterr()
    assert cli.main(["release", "erase", name, "d1", "--releases", str(releases)]) == 2
    said = run.capfd.readouterr().err
    assert f"{name}: its documents are in {kind}, in a collection that is never changed" in said
    assert "remove them from the data set, run taugate recalibrate" in said
    assert f"drop their collections with taugate release prune --engine {kind}" in said


def test_prune_drops_old_unused_collections(kind: EngineKind, engine: Engine, released: Path, tmp_path: Path) -> None:
    releases, other = released, tmp_path / "other"
    other.mkdir()
    (name,) = release_ids(releases)
    manifest = manifest_of(releases, name)
    named, lone = EngineRecord.model_validate(manifest["engine"]).collection, "tg_" + "0" * 32
    engine.drop(lone, soon())
    engine.create(lone, 8, soon())
    prune = ["release", "prune", "--releases", str(releases), "--engine", kind]
    assert cli.main(prune) == 0
    assert {lone, named} <= {*engine.names(soon())}  # too young
    tomorrow = time.time() + 24.1 * 3600
    if engine.created(lone, soon()) is None:  # milvus-lite keeps no descriptions
        assert kind == "milvus"
        decided = {each.name: each.kept for each in prune_collections(engine, [releases], now=tomorrow)}
        assert decided[lone] == "of unknown age"
        return
    decided = {each.name: each.kept for each in prune_collections(engine, [releases], dry_run=True, now=tomorrow)}
    assert decided == {lone: None, named: f"used by release {manifest['release_id']}"}
    assert lone in engine.names(soon())
    left = {each.name for each in prune_collections(engine, [other], dry_run=True, now=tomorrow) if each.kept is None}
    assert left == {lone, named}  # of a directory that nobody named
    with calibration_lock(releases), pytest.raises(ReleaseError, match="is calibrating into it"):
        [*prune_collections(engine, [other, releases], now=tomorrow)]
    (releases / manifest["release_id"] / "manifest.json").write_text("{")
    with pytest.raises(ReleaseError, match="the collection that it needs is unknown"):
        [*prune_collections(engine, [releases], now=tomorrow)]
    assert lone in engine.names(soon())
    assert [each.kept for each in prune_collections(engine, [other], now=tomorrow)] == [None, None]
    assert engine.names(soon()) == []


@pytest.mark.slow
def test_embeddings_option_gives_same_release(
    data: tuple[Path, Path], kind: EngineKind, tmp_path: Path, run: Capture, capfd: pytest.CaptureFixture[str]
) -> None:
    releases, encoded = tmp_path / "r", tmp_path / "encoded"
    _, here, _ = run(data[0], releases, data[1], *OPTIONS, "--engine", kind)
    (tmp_path / "spool").mkdir()
    read_dataset(data[0], "test", tmp_path / "spool")
    sharded_vectors._encoded(ExportedEncoder.load(data[1]), tmp_path / "spool", encoded, TEXTS, Job())
    given = ("--engine", kind, "--embeddings", str(encoded))
    code, there, said = run(data[0], releases, data[1], *OPTIONS, *given)
    assert code == 0
    assert "; nothing to upload" in said
    assert there["engine"] == here["engine"]
    assert there["policy"] == here["policy"]
    other = small(tmp_path / "other", 40, texts=50)[0]
    command = arguments(other, tmp_path / "none", data[1], *given)
    assert "its vectors are of another corpus" in refusal(command, tmp_path / "none", capfd)


def test_failed_upload_leaves_no_collection(
    data: tuple[Path, Path],
    kind: EngineKind,
    engine: Engine,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in engine.names(soon()):
        engine.drop(name, soon())

    def refuse(*_: object) -> None:
        raise ReleaseError("no space is left")

    monkeypatch.setattr(type(engine), "finish", refuse)
    command = arguments(data[0], tmp_path / "r", data[1], "--engine", kind)
    assert refusal(command, tmp_path / "r", capfd) == "no space is left"
    assert engine.names(soon()) == []


def test_inaccurate_engine_is_not_accepted(
    data: tuple[Path, Path],
    kind: EngineKind,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = ProposedIndex.search

    def shuffled(index: ProposedIndex, queries: np.ndarray, k: int) -> TopK:
        top = found(index, queries, k)
        return TopK(top.scores, np.roll(top.positions, 1, axis=0))

    monkeypatch.setattr(ProposedIndex, "search", shuffled)
    command = arguments(data[0], tmp_path / "r", data[1], "--engine", kind)
    said = refusal(command, tmp_path / "r", capfd)
    assert f"{kind}, breadth 1024: the gate does not accept the engine" in said
    assert "that is not enough" in said
