"""`taugate adapt --keep-documents`: only queries pass the map, in the folder, in releases, and in what follows."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

pytest.importorskip("torch")
from sentence_transformers import SentenceTransformer

from adapt_tests.test_exported_base import with_product
from taugate.calibration.encoding.sharded_vectors import encode_in_shards
from taugate.calibration.encoding.source import Encoders, exported_encoder
from taugate.calibration.progress import Job
from taugate.calibration.recalibration.request import inherited_encoder
from taugate.cli import main as cli
from taugate.data.beir import read_dataset
from taugate.errors import EncoderError, ReleaseError
from taugate.registry.catalog import current_id
from taugate.release.adaptation import ADAPTATION, DOCUMENTS
from taugate.release.encoder import CONFIG, MODEL, TOKENIZER
from taugate.release.verify import verify_searchable
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from taugate_adapt import adapter
from taugate_adapt.folder import fold_linear_map
from tests.calibration.commands import refusal
from tests.calibration.update.corpora import Updating, documents_of, manifest_of, mixed_changes, newer
from tests.fake_encoder import DIMENSION
from tests.release.clones import clone

pytestmark = pytest.mark.model
SPOILT = 4.0  # how much longer some dimensions are than the others
TEXTS = ["What does a new roof cost?", "a contract for the foundation", "roof"]


def adapt(data: Path, base: Path, target: Path, *more: str) -> list[str]:
    kept = ("--recipe", "adapter", "--keep-documents", "--budget", "16steps")
    return ["adapt", str(data), "--encoder", str(base), "--to", str(target), "--split", "test", *kept, *more]


class Adapted(NamedTuple):
    """A base, and the encoder that was made of it."""

    base: Path
    folder: Path

    def map(self) -> tuple[np.ndarray, np.ndarray]:
        """A and b, as they were written."""
        dense = self.folder / "query_2_Dense"
        if dense.is_dir():
            layer = SentenceTransformer(str(self.folder), device="cpu")[0].sub_modules["query"][2].linear
            return layer.weight.detach().numpy(), layer.bias.detach().numpy()
        constants = {
            item.name: numpy_helper.to_array(item) for item in onnx.load(self.folder / MODEL).graph.initializer
        }
        last = max(name for name in constants if name.endswith("/weight"))
        return constants[last], constants[last.replace("weight", "bias")]

    def queries(self, texts: list[str]) -> np.ndarray:
        """Vectors of queries by the base, through the map."""
        weight, bias = self.map()
        mapped = ExportedEncoder.load(exported_encoder(str(self.base))).encode(texts, "query") @ weight.T + bias
        return mapped / np.linalg.norm(mapped, axis=1, keepdims=True)

    def documents(self, texts: list[str]) -> np.ndarray:
        """Vectors of documents by the base."""
        return ExportedEncoder.load(exported_encoder(str(self.base))).encode(texts, "document")

    def check_scores(self, release: Path, data: Path) -> None:
        """Compare the scores that a release serves with those of the base's documents and mapped queries."""
        opened = load(release)
        texts = [json.loads(line)["text"] for line in (data / "queries.jsonl").open(encoding="utf-8")][:40]
        documents = self.documents([f"{item.get('title', '')} {item['text']}".strip() for item in documents_of(data)])
        literal = self.queries(texts) @ documents.T
        for row, result in enumerate(opened.retriever.search([Query(text, 5) for text in texts])):
            top = np.sort(literal[row])[::-1][:5]
            assert result.scores == pytest.approx(top[: len(result.scores)], abs=2e-6)
            assert result.scores == pytest.approx(literal[row, result.positions], abs=2e-6)


def calibrate(data: Path, releases: Path, encoder: Path, *more: str) -> list[str]:
    command = ["calibrate", str(data), "--lexical", "off", "--releases", str(releases), "--encoder", str(encoder)]
    return [*command, *more]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, spoilt: Path) -> Path:
    """A static model in which a few dimensions are stronger than the others, as far as queries alone can undo it."""
    folder = tmp_path_factory.mktemp("models") / "model"
    milder = SentenceTransformer(str(spoilt), device="cpu")
    milder[0].embedding.weight.data[:, :4] = (milder[0].embedding.weight.data[:, :4] - 4) * SPOILT / 12
    milder.save(str(folder), create_model_card=False)
    return folder


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> Path:
    """The same as a graph alone, with a product to quantise."""
    folder = tmp_path_factory.mktemp("models") / "graph"
    folder.mkdir()
    for name in (TOKENIZER, CONFIG):
        shutil.copyfile(encoder / name, folder / name)
    scales = np.where(np.arange(DIMENSION) < 8, SPOILT, 1).astype(np.float32)
    with_product(encoder / MODEL, folder / "turned.onnx")
    fold_linear_map(folder / "turned.onnx", np.diag(scales), np.zeros(DIMENSION, dtype=np.float32), folder / MODEL)
    (folder / "turned.onnx").unlink()
    return folder


@pytest.fixture(scope="module", params=["model", "graph"])
def adapted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Adapted:
    base = request.getfixturevalue(request.param)
    target = tmp_path_factory.mktemp("adapted") / "encoder"
    assert cli.main(adapt(sample, base, target)) == 0
    return Adapted(base, target)


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory, sample: Path, adapted: Adapted) -> Path:
    """A release with the base, and the one with the adapted encoder, which is current."""
    folder = tmp_path_factory.mktemp("releases")
    for encoder in adapted:
        assert cli.main(calibrate(sample, folder, encoder)) == 0
    return folder


def test_record_keeps_documents_and_base(adapted: Adapted) -> None:
    record = json.loads((adapted.folder / ADAPTATION).read_text())
    assert record["keeps_documents"] is True
    assert record["admitted"] is True
    assert record["gain"]["ndcg"]["lower"] > 0
    assert (record["recipe"], record.get("whitening")) == ("adapter", None)
    assert record["isotropy_before"] == record["isotropy_after"]
    documents = ExportedEncoder.load(adapted.folder / DOCUMENTS)
    assert documents.sha256 == ExportedEncoder.load(exported_encoder(str(adapted.base))).sha256
    loaded = Encoders.load(str(adapted.folder))
    assert loaded.documents.sha256 == documents.sha256
    assert loaded.queries.encode(TEXTS, "query") == pytest.approx(adapted.queries(TEXTS), abs=1e-6)
    weight, bias = adapted.map()
    assert np.abs(weight - np.eye(len(weight))).max() > 0.01
    assert not bias.any()


def test_loaded_model_maps_queries_only(model: Path, sample: Path, tmp_path: Path) -> None:
    adapted = Adapted(model, tmp_path / "encoder")
    assert cli.main(adapt(sample, model, adapted.folder)) == 0
    base, loaded = (SentenceTransformer(str(folder), device="cpu") for folder in adapted)
    assert loaded.encode_query(TEXTS) == pytest.approx(adapted.queries(TEXTS), abs=1e-6)
    np.testing.assert_array_equal(loaded.encode_document(TEXTS), base.encode_document(TEXTS))
    np.testing.assert_array_equal(loaded.encode(TEXTS), base.encode(TEXTS), "a text without a task is a document")
    assert len([*adapted.folder.glob("*/*.safetensors")]) == 2, "the weights, once, and the map"


def test_truncating_base_keeps_documents(model: Path, sample: Path, tmp_path: Path) -> None:
    cut = SentenceTransformer(str(model), device="cpu", truncate_dim=32)
    cut.save(str(tmp_path / "cut"), create_model_card=False)
    assert cli.main(adapt(sample, tmp_path / "cut", tmp_path / "encoder")) in {0, 4}
    loaded, encoders = (
        SentenceTransformer(str(tmp_path / "encoder"), device="cpu"),
        Encoders.load(str(tmp_path / "encoder")),
    )
    np.testing.assert_array_equal(loaded.encode_document(TEXTS), cut.encode_document(TEXTS))
    queries = loaded.encode_query(TEXTS)
    assert queries.shape == (len(TEXTS), 32)
    assert encoders.queries.encode(TEXTS, "query") == pytest.approx(queries, abs=1e-6)
    assert encoders.documents.config.dimension == 32


@pytest.mark.slow
def test_documents_are_not_encoded_again(
    adapted: Adapted, releases: Path, sample: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    assert cli.main(calibrate(sample, tmp_path, adapted.folder)) == 0
    assert "Encoded 0 of 503 documents" in capfd.readouterr().err
    encoding = tmp_path / "encoding"
    assert cli.main(["encode", str(sample), "--to", str(encoding), "--encoder", str(adapted.folder)]) == 0
    assert json.loads((encoding / "encoding.json").read_text())["encoder"] == manifest_of(releases)["encoder"]["sha256"]


def test_release_serves_mapped_queries(adapted: Adapted, releases: Path, sample: Path) -> None:
    before, after = (verify_searchable(folder) for folder in sorted(releases.glob("*-*")))
    assert before.query_encoder is None
    assert "query_encoder" not in before.model_dump()
    assert after.encoder == before.encoder
    assert after.query_encoder is not None
    assert after.query_encoder.sha256 == ExportedEncoder.load(exported_encoder(str(adapted.folder))).sha256
    index = next(name for name in after.files if name.startswith("index"))
    assert after.files[index].sha256 == before.files[index].sha256, "nothing is indexed anew"
    current = releases / after.release_id
    adapted.check_scores(current, sample)
    assert "recipe adapter, for queries only" in (current / "report.html").read_text(encoding="utf-8")
    requested = inherited_encoder(current, after)
    assert Encoders.load(requested.name).queries.sha256 == after.query_encoder.sha256
    assert Encoders.load(requested.name).documents.sha256 == after.encoder.sha256


@pytest.mark.slow
def test_recalibrated_release_is_the_same(
    releases: Path, sample: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    current = releases / str(current_id(releases))
    capfd.readouterr()
    assert cli.main(calibrate(sample, tmp_path, current / "encoder-queries", "--json")) == 0
    manifest = json.loads(capfd.readouterr().out)["manifest"]
    assert manifest["release_id"].rpartition("-")[2] == current.name.rpartition("-")[2]
    assert cli.main(calibrate(sample, tmp_path, current / "encoder")) == 0
    assert "adaptation" not in manifest_of(tmp_path), "the encoder of documents is the base"


@pytest.mark.slow
def test_shards_hold_base_vectors(adapted: Adapted, sample: Path, tmp_path: Path) -> None:
    encoding = tmp_path / "encoding"
    assert cli.main(["encode", str(sample), "--to", str(encoding), "--encoder", str(adapted.folder)]) == 0
    spool = tmp_path / "spool"
    spool.mkdir()
    dataset = read_dataset(sample, "test", spool)
    loaded = Encoders.load(str(adapted.folder))
    encoded, vectors = encode_in_shards(dataset, loaded, str(encoding), spool, Job())
    texts = [dataset.documents[row].encoded_text for row in range(5)]
    assert vectors[np.arange(5)] == pytest.approx(adapted.documents(texts), abs=1e-6)
    requested = [query.text for query in dataset.answerable[:5]]
    assert encoded.answerable[:5] == pytest.approx(adapted.queries(requested), abs=1e-6)


def test_missing_query_encoder_record_is_refused(releases: Path, tmp_path: Path) -> None:
    shutil.copytree(releases, tmp_path / "releases")
    source = tmp_path / "releases" / str(current_id(releases))
    forged = clone(source, 1, lambda manifest: manifest.pop("query_encoder"))
    with pytest.raises(ReleaseError, match="the manifest and its files disagree on encoder-queries"):
        load(source.parent / forged)


def test_query_map_counts_as_new_encoder(
    adapted: Adapted, releases: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(releases, tmp_path / "releases")
    before, after = sorted(folder.name for folder in releases.glob("*-*"))
    assert cli.main(["release", "rollback", before, "--releases", str(tmp_path / "releases")]) == 0
    promote = ["release", "promote", after, "--releases", str(tmp_path / "releases")]
    capfd.readouterr()
    assert cli.main(promote) == 2
    assert "similarities and thresholds of the two cannot be compared" in capfd.readouterr().err
    assert cli.main([*promote, "--new-encoder"]) == 0
    assert cli.main(["release", "diff", before, "--releases", str(tmp_path / "releases")]) == 0
    assert "of queries: digest" in capfd.readouterr().out


@pytest.mark.parametrize("precision", [(), ("--precision", "int8", "--margin", "0.05", "--force")])
@pytest.mark.slow
def test_update_encodes_documents_by_base(
    precision: tuple[str, ...], adapted: Adapted, sample: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if precision and not (adapted.folder / MODEL).is_file():
        pytest.skip("a static model has no product to quantise")
    folder = tmp_path / "releases"
    assert cli.main(calibrate(sample, folder, adapted.folder, *precision)) == 0
    before = manifest_of(folder)
    data = newer(sample, tmp_path / "newer", mixed_changes)
    code, printed, _ = Updating(capfd)(data, folder, "--force")
    assert code == 0
    after = manifest_of(folder, printed["release"])
    names = ("encoder", "query_encoder", "adaptation")
    assert {name: after[name] for name in names} == {name: before[name] for name in names}
    assert after.get("float32_encoder") == before.get("float32_encoder")
    assert after["query_encoder"]["precision"] == ("int8" if precision else "float32")
    if not precision:
        adapted.check_scores(folder / printed["release"], data)
    opened = load(folder / printed["release"], precision="float32")
    requested = opened.retriever.vectors(TEXTS)
    assert requested == pytest.approx(adapted.queries(TEXTS), abs=1e-6)
    new = [item["text"] for item in documents_of(data)][40:45]
    index = opened.retriever.index
    assert isinstance(index, FlatIndex)
    assert index.vectors[40:45] == pytest.approx(adapted.documents(new), abs=1e-6)


def test_erasing_keeps_both_encoders(releases: Path, sample: Path, tmp_path: Path) -> None:
    shutil.copytree(releases, tmp_path / "releases")
    name, gone = str(current_id(releases)), documents_of(sample)[3]["_id"]
    assert cli.main(["release", "erase", name, gone, "--releases", str(tmp_path / "releases")]) == 0
    (erased,) = {item.name for item in (tmp_path / "releases").glob("*-*")} - {
        item.name for item in releases.glob("*-*")
    }
    manifest = load(tmp_path / "releases" / erased).manifest
    assert manifest.query_encoder == verify_searchable(releases / name).query_encoder


@pytest.mark.parametrize("recipe", ["auto", "whitening", "layers", "ft", "pt", "pt-ft", "merge"])
def test_other_recipes_refuse_kept_documents(
    recipe: str, model: Path, sample: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    message = refusal(adapt(sample, model, tmp_path / "encoder", "--recipe", recipe), tmp_path / "encoder", capfd)
    assert message == (
        f"--keep-documents: works only with --recipe adapter, because --recipe {recipe} changes how documents are "
        "encoded; use both options or neither"
    )


def test_auto_maps_documents_too(graph: Path, sample: Path, tmp_path: Path) -> None:
    target = tmp_path / "encoder"
    assert cli.main(["adapt", str(sample), "--encoder", str(graph), "--to", str(target), "--split", "test"]) == 0
    assert "keeps_documents" not in json.loads((target / ADAPTATION).read_text())
    assert not (target / DOCUMENTS).exists()
    loaded = Encoders.load(str(target))
    assert loaded.separate_document_encoder is None


def test_adapted_encoder_is_refused_as_base(
    adapted: Adapted, sample: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    message = refusal(adapt(sample, adapted.folder, tmp_path / "encoder"), tmp_path / "encoder", capfd)
    assert message.endswith(
        "only its queries pass a learned map, not its documents; use the encoder from which it was adapted"
    )


def test_spent_budget_leaves_no_encoder(
    model: Path, sample: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "steps_within", lambda pairs, seconds: 0)
    message = refusal(adapt(sample, model, tmp_path / "encoder", "--budget", "1s"), tmp_path / "encoder", capfd)
    assert message == "the adapter cannot be learned: the budget is spent; raise --budget"
    assert [*tmp_path.iterdir()] == []


def test_changed_weights_are_refused(model: Path, sample: Path, tmp_path: Path) -> None:
    assert cli.main(adapt(sample, model, tmp_path / "encoder")) == 0
    changed = SentenceTransformer(str(tmp_path / "encoder"), device="cpu")
    changed[0].sub_modules["query"][0].embedding.weight.data += 0.1
    changed.save(str(tmp_path / "encoder"), create_model_card=False)
    with pytest.raises(EncoderError, match="encodes documents differently from the graph in its folder documents"):
        exported_encoder(str(tmp_path / "encoder"))
    shutil.rmtree(tmp_path / "encoder" / DOCUMENTS)
    with pytest.raises(EncoderError, match="module 0 is a Router, which cannot be exported"):
        exported_encoder(str(tmp_path / "encoder"))
