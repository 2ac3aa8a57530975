"""`taugate adapt` refuses what it cannot use in one sentence, and leaves nothing half written."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

from adapt_tests.conftest import adapt
from taugate.cli import main as cli
from taugate.storage.files import write_synced
from taugate.storage.folders import exclusive_lock
from taugate_adapt import encoder_trainer, job
from taugate_adapt import folder as folders
from taugate_adapt.recipes import EncodedPairs
from tests.calibration.commands import refusal

pytestmark = pytest.mark.model
Refused = Callable[..., str]


@pytest.fixture
def refused(sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Refused:
    """The message of an adaptation that fails before it has made the folder `encoder`."""

    def run(*options: str, data: Path = sample, target: Path = tmp_path / "encoder") -> str:
        return refusal(adapt(data, spoilt, target, *options), tmp_path / "encoder", capfd)

    return run


def copied(sample: Path, data: Path) -> list[str]:
    """Copy documents and queries of the sample; returns the lines of its qrels."""
    (data / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl"):
        (data / name).write_bytes((sample / name).read_bytes())
    return (sample / "qrels" / "test.tsv").read_text().splitlines()


def test_existing_target_is_untouched(refused: Refused, spoilt: Path, tmp_path: Path) -> None:
    there = shutil.copytree(spoilt, tmp_path / "there")
    before = {path: path.stat().st_mtime_ns for path in there.rglob("*")}
    text = refused(target=there)
    assert text == f"{there}: exists already; name another folder with --to, or remove this one"
    assert {path: path.stat().st_mtime_ns for path in there.rglob("*")} == before


def test_too_few_queries_are_refused(refused: Refused, sample: Path, tmp_path: Path) -> None:
    few = tmp_path / "few"
    lines = copied(sample, few)[:21]
    (few / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    text = refused("--split", "test", data=few)
    assert "only 10 queries to learn from on separate documents, but at least 30 are needed" in text
    text = refused(data=few)
    assert "only 20 queries to decide acceptance by on separate documents, but at least 30 are needed" in text


def test_single_document_queries_are_refused(refused: Refused, sample: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    header, *rows = copied(sample, data)
    document = rows[0].split("\t")[1]
    about_one = ["\t".join([row.split("\t")[0], document, "1"]) for row in rows]
    (data / "qrels" / "test.tsv").write_text("\n".join([header, *about_one]) + "\n")
    assert refused(data=data) == (
        "data: all 503 queries to decide acceptance by are about the same document, or about documents that some of "
        "them share, and count as one; label more queries about other documents"
    )


def test_base_without_layers_uses_linear_recipes(
    adapted: Path,
    sample: Path,
    spoilt: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert cli.main(adapt(sample, spoilt, tmp_path / "auto", "--split", "test")) == 0
    text = capfd.readouterr().err
    assert "warning: layers, ft, pt-ft, merge left out: encoder" in text
    assert "Training none; see the warnings above" in [" ".join(line.split()) for line in text.splitlines()]
    shutil.rmtree(tmp_path / "auto")
    monkeypatch.setattr(EncodedPairs, "encode", None)  # the refusal comes before that, which takes minutes
    text = refusal(adapt(sample, spoilt, tmp_path / "encoder", "--recipe", "layers"), tmp_path / "encoder", capfd)
    assert text.endswith("has no transformer with several layers, which this recipe trains; choose --recipe adapter")
    assert list(tmp_path.iterdir()) == []
    training = json.loads((adapted / "adaptation.json").read_text())["training"]
    assert training["stages"] == []
    assert training.get("merge_weight") is None
    (why,) = training["left_out"].values()
    assert "has no transformer with several layers" in why


def test_missing_training_extra_is_refused(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_trainer, "find_spec", lambda _: None)
    assert refused("--recipe", "ft").endswith(
        "accelerate is not installed, and training through the encoder needs it: pip install "
        "'taugate-adapt[training]', or choose --recipe adapter"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(
            (
                [f"--budget={budget}"],
                f"--budget '{budget}': use a whole number and a unit, such as 90s, 10m, 1h or 200steps",
            )
            for budget in ("10", "0m", "m", "1 m", "-1s")
        ),
        (["--split", ""], "--split '': give the name of a file in qrels/, without .tsv"),
        (["--eval-split", "../test"], "--eval-split '../test': give the name of a file in qrels/, without .tsv"),
        (["--split", "dev"], "dev.tsv: no such file; --split names one of: test"),
        (["--eval-split", "dev"], "dev.tsv: no such file; --eval-split names one of: test"),
        (["--seed", str(2**32)], f"--seed {2**32}: give a whole number from 0 to {2**32 - 1}"),
    ],
)
def test_invalid_option_is_named(refused: Refused, options: list[str], message: str) -> None:
    assert refused(*options).endswith(message)


def test_missing_evaluation_split_names_option(refused: Refused, sample: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "qrels" / "train.tsv").write_text("\n".join(copied(sample, data)) + "\n")
    assert refused(data=data).endswith("--eval-split names one of: train")


@pytest.mark.parametrize("target", ["/proc/encoder", f"/tmp/{'x' * 250}", f"/tmp/{'x' * 300}"])
def test_unwritable_target_is_refused_early(
    target: str, sample: Path, spoilt: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "read_dataset", None)
    capfd.readouterr()
    assert cli.main(adapt(sample, spoilt, Path(target))) == 2
    (text,) = (line for line in capfd.readouterr().err.splitlines() if " is deprecated and " not in line)
    assert text.startswith(f"taugate: {target}: cannot be written (")
    assert text.endswith("name another folder with --to, or correct the permissions of its parent")


def test_target_created_meanwhile_is_untouched(
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


def test_locked_work_folder_is_refused(
    sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target, work = tmp_path / "encoder", tmp_path / ".encoder.work"
    work.mkdir()
    with exclusive_lock(work / "lock", 0, RuntimeError):
        text = refusal(adapt(sample, spoilt, target), target, capfd)
    assert text.startswith(f"{work}: process ")
    assert text.endswith("is adapting there; wait until it ends, or name another folder with --to")
    assert cli.main(adapt(sample, spoilt, target, "--recipe", "whitening")) == 0
    assert [*tmp_path.iterdir()] == [target]


def test_full_disk_leaves_no_target(
    sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "write_synced", full)
    capfd.readouterr()
    assert cli.main(adapt(sample, spoilt, tmp_path / "encoder", "--recipe", "whitening")) == 2
    text = capfd.readouterr().err.splitlines()[-1]
    assert text.endswith(
        "cannot be written there (No space left on device); free some space or name another folder with --to"
    )
    assert list(tmp_path.iterdir()) == []
