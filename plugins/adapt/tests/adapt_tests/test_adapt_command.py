"""`taugate adapt` on a model whose embeddings are spoilt on purpose: the folder, the record, the release."""

import json
from itertools import count
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
from sentence_transformers import SentenceTransformer

from adapt_tests.conftest import adapt
from taugate.calibration.comparison.measures import forgetting_words
from taugate.calibration.encoding.source import exported_encoder
from taugate.cli import main as cli
from taugate.registry import history
from taugate.release.adaptation import read_adaptation
from taugate.retrieval.encoder.encoder import ExportedEncoder
from tests.calibration.commands import refusal
from tests.language_model import fake_model

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def meaningless(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Path:
    """The sample with the labels of each query given to another one."""
    folder = tmp_path_factory.mktemp("meaningless")
    (folder / "qrels").mkdir()
    for name in ("corpus.jsonl", "queries.jsonl"):
        (folder / name).write_bytes((sample / name).read_bytes())
    header, *rows = (sample / "qrels" / "test.tsv").read_text().splitlines()
    queries, judged = zip(*(row.split("\t", 1) for row in rows), strict=True)
    shuffled = [f"{query}\t{remaining}" for query, remaining in zip(queries, judged[100:] + judged[:100], strict=True)]
    (folder / "qrels" / "test.tsv").write_text("\n".join([header, *shuffled]) + "\n")
    return folder


def test_record_holds_recipe_and_evidence(adapted: Path, spoilt: Path) -> None:
    record = json.loads((adapted / "adaptation.json").read_text())
    assert record["admitted"] is True
    assert record.get("reason") is None
    assert record["evidence"] == "human"
    assert record["gain"]["ndcg"]["lower"] > 0.02
    assert "lexical_weight" not in record
    assert record["pairs"]["source"] == "labels and crops"
    assert record["base"] == spoilt.name
    assert len(record["base_sha256"]) == 64
    assert [item["candidate"] for item in record["gate"]] == ["whitening", "adapter"]
    steps = [item["step"] for item in record["curve"] if item["recipe"] == "adapter"]
    assert steps == [2**power for power in range(len(steps))]
    assert record["steps"] == steps[-1]


def test_encoder_ends_in_dense_map(adapted: Path, spoilt: Path) -> None:
    model = SentenceTransformer(str(adapted), device="cpu")
    assert [type(item).__name__ for item in model] == ["StaticEmbedding", "Normalize", "Dense", "Normalize"]
    texts = ["What does a new roof cost?", "a contract for the foundation"]
    dense = model[2].linear
    base = SentenceTransformer(str(spoilt), device="cpu").encode(texts, normalize_embeddings=True)
    expected = base @ dense.weight.detach().numpy().T + dense.bias.detach().numpy()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert model.encode(texts) == pytest.approx(expected, abs=1e-5)


def test_same_seed_gives_same_bytes(adapted: Path, sample: Path, spoilt: Path, tmp_path: Path) -> None:
    assert cli.main(adapt(sample, spoilt, tmp_path / "again", "--split", "test")) == 0
    files = sorted(path.relative_to(adapted) for path in adapted.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*.*"))
    assert all((adapted / name).read_bytes() == (tmp_path / "again" / name).read_bytes() for name in files)


def test_release_carries_adaptation_record(
    adapted: Path, sample: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (
        cli.main(["calibrate", str(sample), "--verbose", "--releases", str(tmp_path), "--encoder", str(adapted)]) == 0
    )
    release = tmp_path / (tmp_path / "current").read_text().strip()
    manifest = json.loads((release / "manifest.json").read_text())
    assert manifest["adaptation"] == json.loads((adapted / "adaptation.json").read_text())
    assert manifest["encoder"]["dimension"] == 64
    again = ["--releases", str(tmp_path / "again"), "--encoder", str(release / "encoder")]
    capfd.readouterr()
    assert cli.main(["calibrate", str(sample), *again, "--json"]) == 0
    printed = capfd.readouterr()
    assert json.loads(printed.out)["manifest"]["adaptation"] == manifest["adaptation"], "kept, as in a recalibration"
    assert "was trained on the split test" in printed.err
    assert cli.main(["release", "verify", release.name, "--releases", str(tmp_path)]) == 0


@pytest.mark.parametrize(("lexical", "before", "code"), [("auto", {0.3, 0.5, 0.7, 1.0}, 4), ("0.4", {0.4}, 0)])
def test_encoder_is_compared_beside_shared_words(  # noqa: PLR0917 (three fixtures and the parameters)
    lexical: str,
    before: set[float],
    code: int,
    sample: Path,
    spoilt: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """By the cosine alone, the same encoder is accepted; to the best weight of its base it adds nothing."""
    target = tmp_path / "encoder"
    command = adapt(sample, spoilt, target, "--recipe", "whitening", "--lexical", lexical)
    assert cli.main(command) == code
    record = read_adaptation(target)
    assert record is not None
    assert record.lexical_weight is not None
    assert record.lexical_weight.before in before
    assert [entry.candidate for entry in record.gate] == ["whitening"]
    shown = [" ".join(line.split()) for line in capfd.readouterr().err.splitlines()]
    expected = f"Score cosine + {record.lexical_weight.before:g} · lexical share before"
    assert [line for line in shown if line.startswith(expected)]


@pytest.mark.slow
def test_unproven_encoder_makes_provisional_release(
    sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "written"
    (written / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "qrels/test.tsv"):
        (written / name).write_bytes((sample / name).read_bytes())
    lines = [json.loads(line) | {"origin": "llm"} for line in (sample / "queries.jsonl").read_text().splitlines()]
    (written / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    target, releases = tmp_path / "encoder", tmp_path / "releases"
    assert cli.main(adapt(written, spoilt, target, "--split", "test", "--recipe", "whitening")) == 0
    record = read_adaptation(target)
    assert record is not None
    assert (record.evidence, record.pairs.source, record.admitted) == ("generated", "generated", True)

    def calibrate(encoder: Path, *more: str) -> tuple[int, str, str]:
        code = cli.main(
            ["calibrate", str(sample), "--verbose", "--releases", str(releases), "--encoder", str(encoder), *more]
        )
        name = capfd.readouterr().out.strip().rsplit("/", 1)[-1]
        return code, name, (releases / "current").read_text().strip()

    code, first, current = calibrate(target)
    manifest = json.loads((releases / first / "manifest.json").read_text())
    assert manifest["adaptation"]["evidence"] == "generated"
    assert (manifest["calibration"]["state"], manifest["calibration"]["reasons"]) == (
        "provisional",
        ["generated_queries"],
    )
    assert (code, current) == (0, first), "it is better than nothing"
    code, calibrated, current = calibrate(spoilt)
    assert (code, current) == (0, calibrated)
    code, second, current = calibrate(target)
    assert (code, current) == (4, calibrated), "a calibrated release stays in force"
    assert second != calibrated


def test_missing_train_split_uses_crops(
    sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(adapt(sample, spoilt, tmp_path / "encoder", "--recipe", "whitening", "--json"))
    printed = json.loads(capfd.readouterr().out)
    assert code == 0
    assert printed["encoder"] == str(tmp_path / "encoder")
    assert printed["adaptation"]["pairs"]["source"] == "crops"
    assert printed["adaptation"]["pairs"].get("split") is None
    assert printed["adaptation"]["steps"] == 0


@pytest.mark.slow
def test_rejected_encoder_is_written(
    meaningless: Path, sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "encoder"
    assert cli.main(adapt(meaningless, spoilt, target, "--split", "test")) == 4
    text = capfd.readouterr().err.splitlines()[-1]
    record = json.loads((target / "adaptation.json").read_text())
    assert record["admitted"] is False
    assert text == f"taugate: not accepted: {record['reason']}. {target} is written for inspection"

    releases = tmp_path / "releases"
    calibrate = ["calibrate", str(sample), "--verbose", "--releases", str(releases), "--encoder", str(target)]
    assert cli.main(calibrate) == 4
    text = capfd.readouterr().err
    assert "warning: taugate adapt did not accept the encoder" in text
    assert text.splitlines()[-1].endswith("or give --force. The release was written but not promoted.")
    assert not (releases / "current").exists()
    (written,) = releases.glob("*-*")
    assert cli.main(["release", "promote", written.name, "--releases", str(releases)]) == 4
    assert cli.main([*calibrate, "--force"]) == 0
    assert history.read(releases).events[-1].forced == ("encoder not admitted",)
    assert cli.main([*calibrate, "--holdout", "0"]) == 0, "it is in service already"


def test_measures_are_recorded_and_printed(
    sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(adapt(sample, spoilt, tmp_path / "encoder", "--recipe", "whitening")) == 0
    record = read_adaptation(tmp_path / "encoder")
    assert record is not None
    assert record.measures is not None
    assert forgetting_words(record.measures.forgetting, unmerged=False) in capfd.readouterr().err
    assert [row.name for row in record.measures.rows] == ["base", "whitening"]
    assert record.measures.familiarity.source == "rules"
    assert sum(record.measures.separation.after.counts) == sum(record.pairs.documents.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--endpoint", "http://127.0.0.1:9"], "--endpoint: rules use no model; add --paraphrases local"),
        (["--paraphrases", "endpoint"], "--paraphrases endpoint: add --endpoint URL"),
        (["--paraphrases", "local", "--endpoint", "http://127.0.0.1:9"], "--endpoint: --paraphrases local uses no"),
    ],
)
def test_incomplete_writer_options_are_refused(
    options: list[str], message: str, sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert message in refusal(adapt(sample, spoilt, tmp_path / "encoder", *options), tmp_path / "encoder", capfd)


def test_language_model_paraphrases(sample: Path, spoilt: Path, tmp_path: Path) -> None:
    replies = count()
    with fake_model() as model:
        model.answer = lambda query: f"{query} ({next(replies)})"
        requested = ["--paraphrases", "endpoint", "--endpoint", model.url, "--model", "fake"]
        assert cli.main(adapt(sample, spoilt, tmp_path / "encoder", "--recipe", "whitening", *requested)) == 0
    record = read_adaptation(tmp_path / "encoder")
    assert record is not None
    assert record.measures is not None
    assert (record.measures.familiarity.source, record.measures.familiarity.writer) == ("llm", "fake")


def test_truncating_base_is_adapted(spoilt: Path, sample: Path, tmp_path: Path) -> None:
    cut = SentenceTransformer(str(spoilt), device="cpu", truncate_dim=32)
    cut.save(str(tmp_path / "cut"), create_model_card=False)
    target = tmp_path / "encoder"
    extra = ("--split", "test", "--recipe", "whitening")
    assert cli.main(adapt(sample, tmp_path / "cut", target, *extra)) == 0
    model = SentenceTransformer(str(target), device="cpu")
    assert model.truncate_dim is None
    texts = ["What does a new roof cost?", "a contract for the foundation"]
    dense = model[-2].linear
    expected = cut.encode(texts, normalize_embeddings=True) @ dense.weight.detach().numpy().T
    expected += dense.bias.detach().numpy()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert model.encode(texts) == pytest.approx(expected, abs=1e-6)
    assert ExportedEncoder.load(exported_encoder(str(target))).encode(texts, "query") == pytest.approx(
        expected, abs=1e-6
    )
