"""`taugate adapt` refuses what it cannot use in one sentence, and leaves nothing half written."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")

from taugate.adaptation import folder as folders
from taugate.adaptation import job, workshop
from taugate.adaptation.recipes import EncodedPairs
from taugate.cli import main as cli
from taugate.storage.files import write_synced
from taugate.storage.locks import exclusive_lock
from tests.adaptation.conftest import adapt
from tests.calibration.commands import refusal

pytestmark = pytest.mark.model


def test_a_folder_that_exists_is_left_alone(
    sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    there = shutil.copytree(spoilt, tmp_path / "there")
    before = {path: path.stat().st_mtime_ns for path in there.rglob("*")}
    said = refusal(adapt(sample, spoilt, there), tmp_path / "nothing", capfd)
    assert said == f"{there}: exists already; name another folder with --to, or remove this one"
    assert {path: path.stat().st_mtime_ns for path in there.rglob("*")} == before


def test_too_few_queries_are_one_sentence(
    sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    few = tmp_path / "few"
    (few / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl"):
        (few / name).write_bytes((sample / name).read_bytes())
    lines = (sample / "qrels" / "test.tsv").read_text().splitlines()[:21]
    (few / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    said = refusal(adapt(few, spoilt, tmp_path / "encoder", "--split", "test"), tmp_path / "encoder", capfd)
    assert "10 queries to learn from on documents of their own, and 30 are the fewest" in said
    said = refusal(adapt(few, spoilt, tmp_path / "encoder"), tmp_path / "encoder", capfd)
    assert "20 queries to decide on admission on documents of their own, and 30 are the fewest" in said


def test_questions_that_are_all_about_one_document_decide_nothing(
    sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    (data / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl"):
        (data / name).write_bytes((sample / name).read_bytes())
    header, *rows = (sample / "qrels" / "test.tsv").read_text().splitlines()
    document = rows[0].split("\t")[1]
    about_one = ["\t".join([row.split("\t")[0], document, "1"]) for row in rows]
    (data / "qrels" / "test.tsv").write_text("\n".join([header, *about_one]) + "\n")
    said = refusal(adapt(data, spoilt, tmp_path / "encoder"), tmp_path / "encoder", capfd)
    assert said == (
        "data: all 503 queries to decide on admission are about the same document, or about documents that some of "
        "them share, and count as one; label more, about other documents"
    )


def test_a_base_without_layers_is_adapted_by_linear_recipes_alone(
    adapted: Path,
    sample: Path,
    spoilt: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert cli.main(adapt(sample, spoilt, tmp_path / "auto", "--split", "test")) == 0
    said = capfd.readouterr().err
    assert "warning: layers, ft, pt-ft, merge left out: encoder" in said
    assert "Training  none; the warnings above say why" in said
    shutil.rmtree(tmp_path / "auto")
    monkeypatch.setattr(EncodedPairs, "encode", None)  # the refusal comes before that, which takes minutes
    said = refusal(adapt(sample, spoilt, tmp_path / "encoder", "--recipe", "layers"), tmp_path / "encoder", capfd)
    assert said.endswith("has no transformer with several layers, which this recipe trains; choose --recipe adapter")
    assert list(tmp_path.iterdir()) == []
    training = json.loads((adapted / "adaptation.json").read_text())["training"]
    assert training["stages"] == []
    assert training["merge_weight"] is None
    (why,) = training["left_out"].values()
    assert "has no transformer with several layers" in why


def test_training_without_its_extra_is_one_sentence(
    sample: Path,
    spoilt: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workshop, "find_spec", lambda _: None)
    said = refusal(adapt(sample, spoilt, tmp_path / "encoder", "--recipe", "ft"), tmp_path / "encoder", capfd)
    assert said.endswith(
        "accelerate is not installed, and training through the encoder needs it: pip install 'taugate[adaptation]', or "
        "choose --recipe adapter"
    )


@pytest.mark.parametrize("budget", ["10", "0m", "m", "1 m", "-1s"])
def test_a_budget_needs_a_unit(
    budget: str, sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said = refusal(adapt(sample, spoilt, tmp_path / "encoder", f"--budget={budget}"), tmp_path / "encoder", capfd)
    assert said.endswith(f"--budget '{budget}': give a whole number and a unit, such as 90s, 10m, 1h or 200steps")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--split", ""], "--split '': give the name of a file in qrels/, without .tsv"),
        (["--eval-split", "../test"], "--eval-split '../test': give the name of a file in qrels/, without .tsv"),
        (["--split", "dev"], "dev.tsv: no such file; --split names one of: test"),
        (["--eval-split", "dev"], "dev.tsv: no such file; --eval-split names one of: test"),
        (["--seed", str(2**32)], f"--seed {2**32}: give a whole number from 0 to {2**32 - 1}"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(
    options: list[str], message: str, sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert refusal(adapt(sample, spoilt, tmp_path / "encoder", *options), tmp_path / "encoder", capfd).endswith(message)


def test_a_data_set_with_nothing_to_decide_by_names_the_option(
    sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    (data / "qrels").mkdir(parents=True)
    for name, source in (("corpus.jsonl",) * 2, ("queries.jsonl",) * 2, ("qrels/train.tsv", "qrels/test.tsv")):
        (data / name).write_bytes((sample / source).read_bytes())
    said = refusal(adapt(data, spoilt, tmp_path / "encoder"), tmp_path / "encoder", capfd)
    assert said.endswith("--eval-split names one of: train")


@pytest.mark.parametrize("target", ["/proc/encoder", f"/tmp/{'x' * 250}", f"/tmp/{'x' * 300}"])
def test_a_folder_that_cannot_be_made_is_refused_before_the_work(
    target: str, sample: Path, spoilt: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "read_dataset", None)
    capfd.readouterr()
    assert cli.main(adapt(sample, spoilt, Path(target))) == 2
    (said,) = capfd.readouterr().err.splitlines()
    assert said.startswith(f"taugate: {target}: cannot be written (")
    assert said.endswith("name another folder with --to, or correct the permissions of its parent")


def test_a_folder_that_appears_meanwhile_is_left_alone(
    sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "encoder"
    write = write_synced

    def write_late(path: Path, content: bytes) -> None:
        target.mkdir()
        (target / "theirs").write_bytes(b"theirs")
        write(path, content)

    monkeypatch.setattr(folders, "write_synced", write_late)
    capfd.readouterr()
    assert cli.main(adapt(sample, spoilt, target, "--recipe", "whitening")) == 2
    assert "the encoder cannot be written there (Directory not empty)" in capfd.readouterr().err.splitlines()[-1]
    assert [*tmp_path.rglob("*")] == [target, target / "theirs"]


def test_two_adaptations_do_not_share_unfinished_work(
    sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target, work = tmp_path / "encoder", tmp_path / ".encoder.work"
    work.mkdir()
    with exclusive_lock(work / "lock", 0):
        said = refusal(adapt(sample, spoilt, target), target, capfd)
    assert said.startswith(f"{work}: process ")
    assert said.endswith("is adapting there; wait until it ends, or name another folder with --to")
    assert cli.main(adapt(sample, spoilt, target, "--recipe", "whitening")) == 0
    assert [*tmp_path.iterdir()] == [target]


def test_a_full_disk_leaves_nothing(
    sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "write_synced", full)
    capfd.readouterr()
    assert cli.main(adapt(sample, spoilt, tmp_path / "encoder", "--recipe", "whitening")) == 2
    said = capfd.readouterr().err.splitlines()[-1]
    assert said.endswith(
        "cannot be written there (No space left on device); free some space, or name another folder with --to"
    )
    assert list(tmp_path.iterdir()) == []
