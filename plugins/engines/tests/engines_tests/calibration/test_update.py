"""An update over an engine gives the release of the same update in the process, and leaves the old one as it was."""

import shutil
import time
from pathlib import Path

import pytest

from engines_tests.calibration.comparing import close
from engines_tests.calibration.conftest import ADDED, CHANGED, OPTIONS, TEXTS, changed, with_milvus_lite
from taugate.cli import main as cli
from taugate.registry.catalog import current_id
from taugate.registry.prune import prune_collections
from taugate.release.engine import EngineKind, EngineRecord
from taugate.release.layout import GOLDEN, OUTCOMES, REFERENCE
from taugate.release.verify import verify
from taugate.retrieval.encoder.encoder import ExportedEncoder, Tokens
from taugate.retrieval.engines.engine import Engine
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from tests.calibration.commands import Capture, arguments, failure
from tests.calibration.update.corpora import Record, Updating, manifest_of, newer
from tests.retrieval.engines.corpus import soon

pytestmark = pytest.mark.usefixtures("broad")


def record_of(releases: Path, name: str | None = None) -> EngineRecord:
    return EngineRecord.model_validate(manifest_of(releases, name)["engine"])


@with_milvus_lite
@pytest.mark.slow
def test_engine_update_matches_in_process(
    data: tuple[Path, Path],
    calibrated: dict[str, Path],
    kind: EngineKind,
    engine: Engine,
    tmp_path: Path,
    update: Updating,
) -> None:
    where = {name: shutil.copytree(path, tmp_path / name) for name, path in calibrated.items()}
    later = newer(data[0], tmp_path / "later", changed)
    first = str(current_id(where["there"]))
    before = record_of(where["there"])
    printed: dict[str, Record] = {}
    for name, releases in where.items():
        code, printed[name], said = update(later, releases, "--margin", "0.2")
        assert code == 0, said
        assert current_id(releases) == printed[name]["release"]
    compared = ("added", "changed", "removed", "holds", "loss")
    assert [printed["there"][each] for each in compared] == [printed["here"][each] for each in compared]
    assert [printed["there"][each] for each in compared[:3]] == [ADDED, CHANGED + 1, 4]

    after = record_of(where["there"])
    assert f"uploading {after.rows} documents to {after.collection}" in said
    assert {before.collection, after.collection} <= {*engine.names(soon())}
    assert (after.kind, after.rows) == (kind, TEXTS - 1)
    here, there = manifest_of(where["here"]), manifest_of(where["there"])
    expected = {"lang": ["texts"], "pages": ["numbers"], "tags": ["texts", "lists"], "year": ["numbers"]}
    assert there["engine"]["fields"] == expected
    for name in ("policy", "metrics", "relevance", "evidence", "calibration", "drift", "refusal", "data"):
        assert close(there[name], here[name]), name
    assert there["policy"] == manifest_of(where["there"], first)["policy"]
    assert [(each["kind"], each["admitted"]) for each in there["gate"]][-1] == ("engine", True)
    told = [{**each["update"], "parent": "", "calibrated": ""} for each in (here, there)]
    assert told[0] == told[1]
    assert (there["update"]["parent"], there["update"]["calibrated"]) == (first, first)
    for name in (REFERENCE, OUTCOMES, GOLDEN):
        assert there["files"][name] == here["files"][name], name

    one, other, old = (
        load(where[name] / str(release))
        for name, release in (
            ("here", current_id(where["here"])),
            ("there", current_id(where["there"])),
            ("there", first),
        )
    )
    asked = [Query(each.text, 4) for each in one.golden]
    vectors = one.retriever.vectors([each.text for each in asked])
    answers = one.retriever.answer(asked, vectors), other.retriever.answer(asked, vectors)
    for answer, answer_there in zip(*answers, strict=True):
        assert answer_there.positions.tolist() == answer.positions.tolist()
        assert answer_there.scores.tobytes() == answer.scores.tobytes()
    assert [each.id for each in other.documents] == [each.id for each in one.documents]
    assert len(old.documents) == TEXTS
    for each in (one, other, old):
        each.close()


def test_only_new_texts_are_encoded(
    data: tuple[Path, Path], there: Path, tmp_path: Path, update: Updating, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    embed = ExportedEncoder.embed

    def counted(self: ExportedEncoder, tokens: list[Tokens], *more: object) -> object:
        encoded.append(len(tokens))
        return embed(self, tokens, *more)  # type: ignore[arg-type]  # what the caller gave

    golden = len(load(there / str(current_id(there))).golden)
    monkeypatch.setattr(ExportedEncoder, "embed", counted)
    code, _, said = update(newer(data[0], tmp_path / "later", changed), there, "--no-promote", "--margin", "0.2")
    assert code == 0, said
    assert f"encoded {ADDED + CHANGED} of {TEXTS - 1} documents and encoded 0 of " in said
    assert sum(encoded) == golden + ADDED + CHANGED  # the queries are in the cache of embeddings


def test_unchanged_documents_are_not_uploaded(
    data: tuple[Path, Path], there: Path, engine: Engine, tmp_path: Path, update: Updating
) -> None:
    names, first = engine.names(soon()), current_id(there)
    later = newer(data[0], tmp_path / "later", lambda documents: documents)
    corpus = later / "corpus.jsonl"
    corpus.write_bytes(corpus.read_bytes().replace(b'", "', b'",  "'))
    code, printed, said = update(later, there)
    assert (code, printed["release"]) == (0, first)
    assert "Nothing to do" in said
    assert "upload" not in said
    assert engine.names(soon()) == names


@pytest.mark.slow
def test_repeated_update_allows_pruning_old_collections(
    data: tuple[Path, Path],
    calibrated: dict[str, Path],
    kind: EngineKind,
    engine: Engine,
    tmp_path: Path,
    update: Updating,
) -> None:
    there, own = tmp_path / "there", newer(data[0], tmp_path / "own", lambda documents: documents[::-1])
    assert cli.main(arguments(own, there, data[1], *OPTIONS, "--engine", kind)) == 0
    first, before = str(current_id(there)), record_of(there)
    one = newer(own, tmp_path / "one", lambda documents: [*documents, {"_id": "one", "text": "word1"}])
    two = newer(one, tmp_path / "two", lambda documents: [{"_id": "two", "text": "word2"}, *documents])
    for later in (one, two):
        code, _, said = update(later, there, "--margin", "0.2")
        assert code == 0, said
        assert f"encoded 1 of {record_of(there).rows} documents" in said
    assert manifest_of(there)["update"]["updates"] == 2
    assert verify(there / str(current_id(there))).parent != first

    def decided(*, dry_run: bool) -> dict[str, str | None]:
        directories, now = [there, calibrated["there"]], time.time() + 24.1 * 3600
        return {each.name: each.kept for each in prune_collections(engine, directories, dry_run=dry_run, now=now)}

    assert decided(dry_run=True)[before.collection] == f"used by release {first}"
    shutil.rmtree(there / first)
    kept = decided(dry_run=False)
    assert kept[record_of(there).collection] == f"used by release {current_id(there)}"
    if engine.created(before.collection, soon()) is None and before.collection in engine.names(soon()):
        assert kept[before.collection] == "of unknown age"  # as milvus-lite keeps no descriptions
        return
    assert kept[before.collection] is None
    assert before.collection not in engine.names(soon())
    assert load(there / str(current_id(there))).manifest.engine is not None


@pytest.mark.slow
def test_embeddings_option_gives_same_update(
    data: tuple[Path, Path],
    there: Path,
    calibrated: dict[str, Path],
    tmp_path: Path,
    update: Updating,
    capfd: pytest.CaptureFixture[str],
) -> None:
    later, encoded = newer(data[0], tmp_path / "later", changed), str(tmp_path / "encoded")
    assert cli.main(["encode", str(later), "--to", encoded, "--encoder", str(data[1])]) == 0
    _, one, _ = update(later, there, "--no-promote", "--margin", "0.2")
    code, other, said = update(later, there, "--no-promote", "--margin", "0.2", "--embeddings", encoded)
    assert code == 0, said
    assert f"read the vectors in {encoded}" in said
    assert "; nothing to upload" in said
    assert other["release"][-12:] == one["release"][-12:]
    command = ["update", str(later), "--verbose", "--releases", str(calibrated["here"]), "--embeddings", encoded]
    assert "needs an --engine such as milvus or pgvector" in failure(command, capfd)


@pytest.mark.slow
def test_calibration_reuses_current_vectors(
    data: tuple[Path, Path], kind: EngineKind, there: Path, engine: Engine, tmp_path: Path, run: Capture
) -> None:
    later = newer(
        data[0], tmp_path / "later", lambda documents: [documents[1] | {"text": "word9"}, documents[0], *documents[2:]]
    )
    more = (*OPTIONS, "--no-promote", "--engine", kind)
    code, taken, said = run(later, there, data[1], *more)
    assert code == 0, said
    assert f"encoded 1 of {TEXTS} documents" in said
    code, anew, _ = run(later, tmp_path / "anew", data[1], *more)
    assert code == 0
    assert taken["engine"] == anew["engine"]
    assert taken["policy"] == anew["policy"]
    name = record_of(there).collection
    engine.drop(name, soon())
    code, _, said = run(data[0], there, data[1], *more)
    assert code == 0
    assert f"warning: encoding all documents again, because the vectors of {current_id(there)} cannot be read: " in said
    assert f"the engine has no collection {name}" in said
    assert f"encoded {TEXTS} of {TEXTS} documents" in said
