"""`taugate adapt` on a model whose embeddings are spoilt on purpose: the folder, the record, refusals, the release."""

import json
import re
import shutil
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import zaragoza_construction_faq
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

pytest.importorskip("torch")
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from taugate.adaptation import folder as folders
from taugate.adaptation import job, workshop
from taugate.adaptation.forgetting import forgetting_words
from taugate.adaptation.recipes import EncodedPairs
from taugate.calibration.encoding.source import exported_encoder
from taugate.cli import main as cli
from taugate.registry import history
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.release.adaptation import read_adaptation
from taugate.storage.files import write_synced
from taugate.storage.locks import exclusive_lock
from tests.calibration.commands import refusal
from tests.language_model import fake_model

pytestmark = pytest.mark.model
WORDS = sorted(
    {
        word
        for entry in zaragoza_construction_faq.load(lang="en")
        for field in ("q", "a")
        for word in re.findall(r"\w+", entry[field].lower())
    }
)


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static model: every word has a random direction, and four dimensions in which all differ drown the others."""
    folder = tmp_path_factory.mktemp("models") / "spoilt"
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(["[UNK]", *WORDS])}, "[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    weights = np.random.default_rng(0).standard_normal((len(WORDS) + 1, 64)).astype(np.float32)
    weights[:, :4] = 12 * weights[:, :4] + 4
    modules = [StaticEmbedding(tokenizer, embedding_weights=weights)]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)
    return folder


@pytest.fixture(scope="module")
def meaningless(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Path:
    """The sample with the labels of each query given to another one."""
    folder = tmp_path_factory.mktemp("meaningless")
    (folder / "qrels").mkdir()
    for name in ("corpus.jsonl", "queries.jsonl"):
        (folder / name).write_bytes((sample / name).read_bytes())
    header, *rows = (sample / "qrels" / "test.tsv").read_text().splitlines()
    queries, judged = zip(*(row.split("\t", 1) for row in rows), strict=True)
    shuffled = [f"{query}\t{rest}" for query, rest in zip(queries, judged[100:] + judged[:100], strict=True)]
    (folder / "qrels" / "test.tsv").write_text("\n".join([header, *shuffled]) + "\n")
    return folder


def adapt(data: Path, base: Path, target: Path, *more: str) -> list[str]:
    return ["adapt", str(data), "--encoder", str(base), "--to", str(target), *more]


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory, sample: Path, spoilt: Path) -> Path:
    target = tmp_path_factory.mktemp("adapted") / "encoder"
    assert cli.main(adapt(sample, spoilt, target, "--split", "test")) == 0
    return target


def test_the_record_says_what_was_learned_and_shown(adapted: Path, spoilt: Path) -> None:
    record = json.loads((adapted / "adaptation.json").read_text())
    assert record["admitted"] is True
    assert record["reason"] is None
    assert record["evidence"] == "human"
    assert record["gain"]["ndcg"]["lower"] > 0.02
    assert record["pairs"]["source"] == "labels and crops"
    assert record["base"] == spoilt.name
    assert len(record["base_sha256"]) == 64
    assert [each["candidate"] for each in record["gate"]] == ["whitening", "adapter"]
    steps = [each["step"] for each in record["curve"] if each["recipe"] == "adapter"]
    assert steps == [2**power for power in range(len(steps))]
    assert record["steps"] == steps[-1]


def test_the_folder_is_the_base_and_a_linear_map_before_the_last_normalisation(adapted: Path, spoilt: Path) -> None:
    model = SentenceTransformer(str(adapted), device="cpu")
    assert [type(each).__name__ for each in model] == ["StaticEmbedding", "Normalize", "Dense", "Normalize"]
    texts = ["What does a new roof cost?", "a contract for the foundation"]
    dense = model[2].linear
    base = SentenceTransformer(str(spoilt), device="cpu").encode(texts, normalize_embeddings=True)
    expected = base @ dense.weight.detach().numpy().T + dense.bias.detach().numpy()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert model.encode(texts) == pytest.approx(expected, abs=1e-5)


def test_the_same_seed_gives_the_same_bytes(adapted: Path, sample: Path, spoilt: Path, tmp_path: Path) -> None:
    assert cli.main(adapt(sample, spoilt, tmp_path / "again", "--split", "test")) == 0
    files = sorted(path.relative_to(adapted) for path in adapted.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*.*"))
    assert all((adapted / name).read_bytes() == (tmp_path / "again" / name).read_bytes() for name in files)


def test_a_release_carries_the_record_and_verifies(
    adapted: Path, sample: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["calibrate", str(sample), "--releases", str(tmp_path), "--encoder", str(adapted)]) == 0
    release = tmp_path / (tmp_path / "current").read_text().strip()
    manifest = json.loads((release / "manifest.json").read_text())
    assert manifest["adaptation"] == json.loads((adapted / "adaptation.json").read_text())
    assert manifest["encoder"]["dimension"] == 64
    again = ["--releases", str(tmp_path / "again"), "--encoder", str(release / "encoder")]
    capfd.readouterr()
    assert cli.main(["calibrate", str(sample), *again, "--json"]) == 0
    printed = capfd.readouterr()
    assert json.loads(printed.out)["manifest"]["adaptation"] == manifest["adaptation"], "kept, as in a recalibration"
    assert "learned from the split test" in printed.err
    assert cli.main(["release", "verify", release.name, "--releases", str(tmp_path)]) == 0


def test_an_encoder_that_no_person_has_judged_makes_provisional_releases(
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
        code = cli.main(["calibrate", str(sample), "--releases", str(releases), "--encoder", str(encoder), *more])
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


def test_crops_teach_where_nobody_named_a_split(
    sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(adapt(sample, spoilt, tmp_path / "encoder", "--recipe", "whitening", "--json"))
    printed = json.loads(capfd.readouterr().out)
    assert code == 0
    assert printed["encoder"] == str(tmp_path / "encoder")
    assert printed["adaptation"]["pairs"]["source"] == "crops"
    assert printed["adaptation"]["pairs"]["split"] is None
    assert printed["adaptation"]["steps"] == 0


def test_an_encoder_that_is_not_better_is_refused_and_written(
    meaningless: Path, sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "encoder"
    assert cli.main(adapt(meaningless, spoilt, target, "--split", "test")) == 4
    said = capfd.readouterr().err.splitlines()[-1]
    record = json.loads((target / "adaptation.json").read_text())
    assert record["admitted"] is False
    assert said == f"taugate: not admitted: {record['reason']}. {target} is written for inspection"

    releases = tmp_path / "releases"
    calibrate = ["calibrate", str(sample), "--releases", str(releases), "--encoder", str(target)]
    assert cli.main(calibrate) == 4
    said = capfd.readouterr().err
    assert "warning: taugate adapt did not admit the encoder" in said
    assert said.splitlines()[-1].endswith("or give --force. The release is written, but not promoted.")
    assert not (releases / "current").exists()
    (written,) = releases.glob("*-*")
    assert cli.main(["release", "promote", written.name, "--releases", str(releases)]) == 4
    assert cli.main([*calibrate, "--force"]) == 0
    assert history.read(releases).events[-1].forced == ("encoder not admitted",)
    assert cli.main([*calibrate, "--holdout", "0"]) == 0, "it is in service already"


def test_a_folder_that_exists_is_left_alone(
    adapted: Path, sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in adapted.rglob("*")}
    said = refusal(adapt(sample, spoilt, adapted), tmp_path / "nothing", capfd)
    assert said == f"{adapted}: exists already; name another folder with --to, or remove this one"
    assert {path: path.stat().st_mtime_ns for path in adapted.rglob("*")} == before


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


def test_measures_are_recorded_and_what_was_forgotten_is_printed(
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
        (["--endpoint", "http://127.0.0.1:9"], "--endpoint: rules ask no model; name --paraphrases local"),
        (["--paraphrases", "endpoint"], "--paraphrases endpoint: add --endpoint URL"),
        (["--paraphrases", "local", "--endpoint", "http://127.0.0.1:9"], "--endpoint: --paraphrases local asks no"),
    ],
)
def test_a_writer_of_paraphrases_is_named_whole(
    options: list[str], message: str, sample: Path, spoilt: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert message in refusal(adapt(sample, spoilt, tmp_path / "encoder", *options), tmp_path / "encoder", capfd)


def test_a_language_model_may_paraphrase(sample: Path, spoilt: Path, tmp_path: Path) -> None:
    replies = count()
    with fake_model() as model:
        model.answer = lambda query: f"{query} ({next(replies)})"
        asked = ["--paraphrases", "endpoint", "--endpoint", model.url, "--model", "fake"]
        assert cli.main(adapt(sample, spoilt, tmp_path / "encoder", "--recipe", "whitening", *asked)) == 0
    record = read_adaptation(tmp_path / "encoder")
    assert record is not None
    assert record.measures is not None
    assert (record.measures.familiarity.source, record.measures.familiarity.writer) == ("llm", "fake")


def test_a_base_that_cuts_its_vectors_off_is_adapted_as_it_serves(spoilt: Path, sample: Path, tmp_path: Path) -> None:
    cut = SentenceTransformer(str(spoilt), device="cpu", truncate_dim=32)
    cut.save(str(tmp_path / "cut"), create_model_card=False)
    target = tmp_path / "encoder"
    more = ("--split", "test", "--recipe", "whitening")
    assert cli.main(adapt(sample, tmp_path / "cut", target, *more)) == 0
    model = SentenceTransformer(str(target), device="cpu")
    assert model.truncate_dim is None
    texts = ["What does a new roof cost?", "a contract for the foundation"]
    dense = model[-2].linear
    expected = cut.encode(texts, normalize_embeddings=True) @ dense.weight.detach().numpy().T
    expected += dense.bias.detach().numpy()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert model.encode(texts) == pytest.approx(expected, abs=1e-6)
    assert OnnxEncoder.load(exported_encoder(str(target))).encode(texts, "query") == pytest.approx(expected, abs=1e-6)
