"""`taugate update` from end to end: what is encoded, promoted, written and left, and what is refused."""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

from taugate.calibration.comparison.publish import Promotion
from taugate.calibration.comparison.rule import QUANTITIES
from taugate.calibration.progress import Job
from taugate.calibration.settings import UpdateSettings
from taugate.calibration.update.job import update as update_release
from taugate.data.beir import read_dataset
from taugate.data.generation.near_misses import near_misses
from taugate.data.questions import off_topic_questions
from taugate.registry import history, writer
from taugate.registry.catalog import current_id, find, release_ids
from taugate.registry.promotion import promote
from taugate.release.layout import OUTCOMES
from taugate.release.queries import Outcomes
from taugate.release.verify import verify
from taugate.retrieval.encoder.encoder import ExportedEncoder, Tokens
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from tests.calibration.commands import Capture, Printed, failure, small
from tests.calibration.update.corpora import Record, Updating, documents_of, garbled, manifest_of, mixed_changes, newer
from tests.registry.conftest import copy, first
from tests.release.clones import clone

__all__ = ["copy", "first"]


@pytest.fixture
def update(capfd: Printed) -> Updating:
    return Updating(capfd)


def test_valid_update_is_promoted(sample: Path, copy: Path, first: str, tmp_path: Path, update: Updating) -> None:
    data = newer(sample, tmp_path / "newer", mixed_changes)
    code, printed, error = update(data, copy)
    assert code == 0
    assert {*printed} == {"release", "parent", "added", "changed", "removed", "holds", "loss", "verdict"}
    assert (printed["parent"], printed["added"], printed["changed"], printed["removed"]) == (first, 5, 5, 0)
    assert printed["holds"]
    assert printed["loss"]["lower"] <= printed["loss"]["mean"] <= printed["loss"]["upper"]
    assert current_id(copy) == printed["release"]
    manifest, before = manifest_of(copy), manifest_of(copy, first)
    assert manifest["policy"] == before["policy"]
    assert manifest["calibration"] == before["calibration"]
    assert manifest["encoder"] == before["encoder"]
    record = manifest["update"]
    assert (record["parent"], record["calibrated"], record["updates"]) == (first, first, 1)
    assert record["loss"] == printed["loss"]
    assert (record["holds"], record["forced"]) == (True, False)
    assert "Verdict     Checked: the documents changed, and the threshold still holds: on 503 queries" in error
    assert printed["verdict"]["path"] == "check"
    event = history.read(copy).events[-1]
    assert (event.release, event.forced) == (printed["release"], ())
    assert "accuracy at τ not lower by more than 0.01" in str(event.rule)
    asked = json.loads((data / "queries.jsonl").read_text(encoding="utf-8").splitlines()[0])["text"]
    assert load(copy / printed["release"]).retriever.search([Query(asked, k=5)])[0].considered == 5


def test_update_keeps_lowest_grade_that_answers(
    sample: Path, copy: Path, first: str, tmp_path: Path, update: Updating
) -> None:
    def graded(manifest: dict) -> None:
        manifest["data"]["relevant_from"] = 1

    promote(copy, clone(copy / first, 1, graded, parent=first))
    assert update(newer(sample, tmp_path / "newer", mixed_changes), copy)[0] == 0
    assert manifest_of(copy)["data"]["relevant_from"] == 1


def test_only_new_texts_are_encoded(
    sample: Path, copy: Path, tmp_path: Path, update: Updating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "empty"))
    encoded: list[int] = []
    embed = ExportedEncoder.embed

    def counted(self: ExportedEncoder, tokens: list[Tokens], *more: object) -> object:
        encoded.append(len(tokens))
        return embed(self, tokens, *more)  # type: ignore[arg-type]  # what the caller gave

    monkeypatch.setattr(ExportedEncoder, "embed", counted)
    data = newer(sample, tmp_path / "newer", mixed_changes)
    code, _, error = update(data, copy, "--no-promote")
    assert code == 0
    golden, queries = (
        32,
        497 + len(off_topic_questions(["Who is liable for the damage?"])),
    )  # asked when the release is opened; six texts come twice
    with tempfile.TemporaryDirectory() as spool:
        near = {question.text for question in near_misses(read_dataset(data, "test", Path(spool)), 0)}
    assert sum(encoded) == golden + 10 + queries + len(near)
    assert "Encoded 10 texts for 508 documents (the other vectors were reused)" in error


def test_second_update_names_calibrated_release(
    sample: Path, copy: Path, first: str, tmp_path: Path, update: Updating
) -> None:
    assert update(newer(sample, tmp_path / "one", mixed_changes), copy)[0] == 0
    code, printed, _ = update(newer(tmp_path / "one", tmp_path / "two", lambda documents: documents[:-2]), copy)
    assert (code, printed["removed"]) == (0, 2)
    record = manifest_of(copy)["update"]
    assert (record["calibrated"], record["updates"]) == (first, 2)
    assert record["parent"] == printed["parent"] != first


def test_metadata_change_encodes_nothing(sample: Path, copy: Path, tmp_path: Path, update: Updating) -> None:
    def tagged(documents: list[Record]) -> list[Record]:
        return [documents[0] | {"metadata": {"edition": 2}}, *documents[1:]]

    code, printed, error = update(newer(sample, tmp_path / "newer", tagged), copy)
    assert (code, printed["changed"]) == (0, 1)
    assert "Encoded 0 texts for 503 documents" in error
    assert load(copy / printed["release"]).metadata.columns


def test_failing_threshold_is_calibrated_again(
    sample: Path, copy: Path, first: str, tmp_path: Path, update: Updating
) -> None:
    """Only if no promotion is requested, or it is forced, the release with the current threshold is written."""
    data = newer(sample, tmp_path / "newer", garbled)
    code, printed, error = update(data, copy, "--no-promote")
    assert (code, printed["holds"], current_id(copy)) == (4, False, first)
    assert printed["loss"]["upper"] > printed["loss"]["mean"] > 0.05
    last = error.splitlines()[-1]
    assert "not promoted: the documents changed, and the threshold is not shown to hold: on 503 queries" in last
    kept = verify(copy / printed["release"])
    assert kept.update is not None
    assert (kept.update.holds, kept.update.forced, kept.state) == (False, False, "inherited")

    code, printed, error = update(data, copy)
    assert (code, printed["holds"], printed["verdict"]["path"]) == (0, False, "calibration")
    assert "Verdict     New calibration: the documents changed, and the threshold is not shown to hold: on 503" in error
    calibrated = verify(find(copy))
    assert (calibrated.release_id, calibrated.update, calibrated.state) == (printed["release"], None, "calibrated")
    assert calibrated.policy.tau != kept.policy.tau


def test_force_keeps_failing_threshold(sample: Path, copy: Path, tmp_path: Path, update: Updating) -> None:
    data = newer(sample, tmp_path / "newer", garbled)
    code, printed, _ = update(data, copy, "--force")
    assert (code, printed["holds"], current_id(copy)) == (0, False, printed["release"])
    manifest = manifest_of(copy)
    assert (manifest["update"]["forced"], manifest["calibration"]["state"]) == (True, "inherited")
    code, printed, _ = update(data, copy)
    assert (code, printed["verdict"]["path"]) == (0, "calibration"), "a threshold that does not hold is chosen again"


def test_update_loss_matches_outcomes(sample: Path, copy: Path, first: str, tmp_path: Path, update: Updating) -> None:
    """Of the held-out queries both releases have written down what each got: their difference is in the paired one."""
    data = newer(sample, tmp_path / "newer", garbled)
    _, printed, _ = update(data, copy, "--no-promote")
    hits = [
        QUANTITIES["accuracy"](Outcomes.load(copy / name / OUTCOMES, 5), 5).values
        for name in (first, printed["release"])
    ]
    held_out = float(np.mean(hits[0] - hits[1]))
    assert len(hits[0]) == 151
    before, after = (load(copy / name) for name in (first, printed["release"]))
    lines = [json.loads(line) for line in (data / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    relevant = {
        line.split("\t")[0]: line.split("\t")[1]
        for line in (data / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]
    }
    shares = []
    for release in (before, after):
        answers = release.retriever.search([Query(line["text"], k=5) for line in lines])
        shares.append(
            np.mean(
                [
                    relevant[line["_id"]] in {release.documents[place].id for place in answer.positions.tolist()}
                    for line, answer in zip(lines, answers, strict=True)
                ]
            )
        )
    assert printed["loss"]["mean"] == pytest.approx(shares[0] - shares[1])
    assert held_out == pytest.approx(printed["loss"]["mean"], abs=0.1)


def test_queries_with_removed_answers_are_left_out(sample: Path, copy: Path, tmp_path: Path, update: Updating) -> None:
    """The qrels still name the documents; nobody has to edit them."""
    data = newer(sample, tmp_path / "newer", lambda documents: documents[10:])
    code, printed, error = update(data, copy)
    assert (code, printed["removed"]) == (0, 10)
    assert "10 queries are left out: every document that answered them was removed" in error
    manifest = manifest_of(copy)
    assert (manifest["data"]["answerable"], manifest["data"]["unanswerable"]) == (493, 0)
    assert manifest["update"]["queries"] == 493
    code, printed, error = update(sample, copy, "--margin", "0.05")
    assert (code, printed["added"]) == (0, 10)
    assert "10 queries are only about new documents" in error
    assert manifest_of(copy)["update"]["queries"] == 493


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hnsw", "ivf-flat"])
def test_approximate_index_is_tested_again(
    kind: str, sample: Path, encoder: Path, tmp_path: Path, update: Updating, capfd: Printed
) -> None:
    releases = tmp_path / "releases"
    code, before, _ = Capture(capfd)(sample, releases, encoder, "--index", kind, "--margin", "0.1", "--lexical", "off")
    assert (code, before["index"]["kind"]) == (0, kind)
    code, _, error = update(newer(sample, tmp_path / "newer", mixed_changes), releases, "--margin", "0.1")
    assert code == 0, error
    manifest = manifest_of(releases)
    assert (manifest["index"]["kind"], manifest["index"]["documents"]) == (kind, 508)
    (record,) = manifest["gate"]
    assert (record["kind"], record["admitted"], record["margin"]) == ("index", True, 0.1)


@pytest.mark.slow
def test_update_keeps_projection(sample: Path, encoder: Path, tmp_path: Path, update: Updating, capfd: Printed) -> None:
    releases = tmp_path / "releases"
    options = ("--projection", "query-pca", "--retention", "0.5", "--margin", "0.3")
    code, before, _ = Capture(capfd)(sample, releases, encoder, *options)
    assert code == 0
    assert before.get("projection") is not None
    code, _, error = update(newer(sample, tmp_path / "newer", mixed_changes), releases)
    assert code == 0, error
    manifest = manifest_of(releases)
    assert manifest["projection"] == before["projection"]
    assert manifest["gate"] == before["gate"]
    assert manifest["files"]["projection.safetensors"] == before["files"]["projection.safetensors"]


def with_unanswerable(folder: Path, capfd: Printed) -> tuple[Path, Path, Record]:
    """A data set with 80 unanswerable queries, its releases, and a manifest that limits how many are answered."""
    data, encoder = small(folder / "small", 120, texts=120)
    with (data / "queries.jsonl").open("a", encoding="utf-8") as queries:
        queries.writelines(json.dumps({"_id": f"u{row}", "text": f"word{row} a b"}) + "\n" for row in range(80))
    with (data / "qrels" / "test.tsv").open("a", encoding="utf-8") as qrels:
        qrels.writelines(f"u{row}\td{row}\t0\n" for row in range(80))
    releases = folder / "releases"
    code, manifest, _ = Capture(capfd)(data, releases, encoder, "--max-answered", "0.2", "--max-empty", "0.2")
    assert code == 0
    return data, releases, manifest


def test_update_keeps_refusals(tmp_path: Path, update: Updating, capfd: Printed) -> None:
    """The score by which queries are refused keeps its threshold, and is worked out in the newer corpus."""
    data, releases, before = with_unanswerable(tmp_path, capfd)
    added = [{"_id": f"new-{row}", "text": f"word{row} word{row + 1} word{row + 2}"} for row in range(200, 203)]
    code, _, error = update(newer(data, tmp_path / "newer", lambda documents: [*added, *documents]), releases)
    assert code == 0, error
    manifest = manifest_of(releases)
    assert manifest["refusal"]["limits"] == before["refusal"]["limits"]
    assert manifest["calibration"] == before["calibration"]
    assert "withdrawn" not in manifest
    release = load(releases / str(current_id(releases)))
    answers = release.retriever.search([Query("word70 a b", k=5)])
    assert answers[0].reason == "unanswerable"
    assert answers[0].calibrated


def test_answered_unanswerable_withdraws_certificate(tmp_path: Path, update: Updating, capfd: Printed) -> None:
    data, releases, before = with_unanswerable(tmp_path, capfd)
    added = [{"_id": f"new-{row}", "text": f"word{row} a b"} for row in range(60)]
    changed = newer(data, tmp_path / "newer", lambda documents: [*added, *documents])
    code, printed, error = update(changed, releases, "--no-promote")
    assert (code, printed["holds"], printed["withdrawn"]) == (4, False, ["answered"])
    assert current_id(releases) == before["release_id"]
    assert "Withdrawn   answered: At most 20 % of the unanswerable queries get a result." in error
    manifest = manifest_of(releases, printed["release"])
    assert not manifest["refusal"]["certified"]
    assert manifest["calibration"]["state"] == "inherited"
    counted = manifest["refusal"]["evidence"]["unanswerable"]
    assert 1 - counted["lower"] >= 1 - counted["refused"] / counted["queries"] > 0.2
    release = load(releases / printed["release"])
    answer = release.retriever.search([Query("word70 word71 word72", k=5)])[0]
    assert not answer.calibrated


def test_unasked_certificate_is_withdrawn(tmp_path: Path, capfd: Printed) -> None:
    """Without the unanswerable queries nothing shows that the limit still holds."""
    data, releases, _ = with_unanswerable(tmp_path, capfd)
    changed = newer(data, tmp_path / "newer", lambda documents: [*documents, {"_id": "new", "text": "word300 c"}])
    qrels = changed / "qrels" / "test.tsv"
    lines = qrels.read_text(encoding="utf-8").splitlines(keepends=True)
    qrels.write_text("".join(line for line in lines if not line.startswith("u")), encoding="utf-8")
    check = update_release(changed, find(releases), UpdateSettings(), Promotion(), Job(), keep=True)
    assert check is not None
    assert [record.promise for record in check.withdrawn] == ["answered", "refused"]
    assert "(no labelled query of the data set asks it)" in check.finding
    manifest = manifest_of(releases, check.release)
    assert (manifest["refusal"]["certified"], manifest["calibration"]["state"]) == (False, "inherited")


def refused(arguments: list[str], capfd: Printed) -> str:
    return failure(["update", *arguments], capfd)


def test_invalid_input_writes_nothing(sample: Path, copy: Path, first: str, tmp_path: Path, capfd: Printed) -> None:
    there, data, empty = str(copy), str(sample), str(tmp_path / "empty")
    assert "no such directory" in refused([str(tmp_path / "missing"), "--releases", there], capfd)
    assert "no release is current" in refused([data, "--releases", empty], capfd)
    assert not Path(empty).exists()
    assert "--margin 0.0: give a loss" in refused([data, "--releases", there, "--margin", "0"], capfd)
    assert "--force: --no-promote" in refused([data, "--releases", there, "--force", "--no-promote"], capfd)
    assert "--split names one of: test" in refused([data, "--releases", there, "--split", "human"], capfd)
    few = newer(sample, tmp_path / "few", lambda documents: documents[:3])
    assert "has 3 documents, fewer than K = 5" in refused([str(few), "--releases", there], capfd)
    typo = newer(sample, tmp_path / "typo", lambda documents: documents)
    with (typo / "qrels" / "test.tsv").open("a", encoding="utf-8") as qrels:
        qrels.write(f"{json.loads((typo / 'queries.jsonl').open().readline())['_id']}\tnever-was\t1\n")
    assert "'never-was' is not in corpus.jsonl" in refused([str(typo), "--releases", there], capfd)
    assert release_ids(copy) == [first]


def test_unreadable_release_is_rejected(sample: Path, copy: Path, first: str, tmp_path: Path, capfd: Printed) -> None:
    data = newer(sample, tmp_path / "newer", mixed_changes)
    other = shutil.copytree(copy, tmp_path / "other")
    (copy / first / "encoder" / "model.onnx").write_bytes(b"broken")
    assert "encoder/model.onnx" in refused([str(data), "--releases", str(copy)], capfd)
    manifest = other / first / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"schema_version": 3', b'"schema_version": 9'))
    assert "schema version 9" in refused([str(data), "--releases", str(other)], capfd)


def test_concurrent_promotion_is_kept(
    sample: Path, copy: Path, first: str, tmp_path: Path, capfd: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was compared with is no longer current when the update is done."""
    write = writer.write

    def overtaken(*arguments: object, **keywords: object) -> object:
        promote(copy, clone(copy / first, 1, parent=first))
        return write(*arguments, **keywords)  # type: ignore[arg-type]  # what the caller gave

    monkeypatch.setattr(writer, "write", overtaken)
    data = newer(sample, tmp_path / "newer", mixed_changes)
    assert "another command made" in refused([str(data), "--releases", str(copy)], capfd)
    assert len(documents_of(data)) == 508


def test_lexical_part_keeps_weight_and_has_new_words(
    sample: Path, copy: Path, tmp_path: Path, update: Updating
) -> None:
    def renamed(documents: list[Record]) -> list[Record]:
        return [documents[0] | {"text": "Kvasttjänster erbjuds i Ängelholm", "title": ""}, *documents[1:]]

    before = load(find(copy))
    assert isinstance(before.retriever.index, HybridIndex)
    assert update(newer(sample, tmp_path / "newer", renamed), copy)[0] == 0
    after = load(find(copy))
    assert isinstance(after.retriever.index, HybridIndex)
    assert after.retriever.index.weight == before.retriever.index.weight
    texts = [document.encoded_text for document in after.documents]
    expected = before.retriever.index.lexical.of_other_texts(texts)
    assert after.retriever.index.lexical.to_bytes() == expected.to_bytes()
    record, earlier = after.manifest.lexical, before.manifest.lexical
    assert record is not None
    assert earlier is not None
    assert (record.weight, record.k1, record.b) == (earlier.weight, earlier.k1, earlier.b)
    assert record.sha256 == after.manifest.files["lexical.safetensors"].sha256 != earlier.sha256
    answer = after.retriever.search([Query("kvasttjänster", k=1, min_results=1)])[0]
    assert after.documents[int(answer.positions[0])].id == before.documents[0].id
    kinds = [[entry.candidate for entry in manifest.gate] for manifest in (before.manifest, after.manifest)]
    assert kinds[0] == kinds[1]
