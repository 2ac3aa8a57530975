"""Folders that are not dense encoders, or not complete, get one sentence before any work."""

import json
import shutil
from pathlib import Path

import pytest

from taugate.calibration.encoding.source import exported_encoder
from taugate.calibration.export.model_folder import ModelFolder
from taugate.errors import EncoderError
from taugate.retrieval.encoder.encoder import ExportedEncoder
from tests.calibration.export.architectures import EXPORTED, model_folder, transformer_folder

pytestmark = pytest.mark.model
BERT = EXPORTED["BERT (bge, gte, MiniLM)"]


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("dense"), *BERT)


@pytest.fixture
def model(dense: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dense, tmp_path / "model"))


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values), encoding="utf-8")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"model_type": "ColBERT"}, "several vectors per text"),
        ({"model_type": "MultiVectorEncoder"}, "several vectors per text"),
        ({"similarity_fn_name": "MaxSim"}, "several vectors per text"),
        ({"model_type": "SparseEncoder"}, "sparse vectors of words"),
        ({"model_type": "CrossEncoder"}, "scores pairs of texts"),
    ],
)
def test_model_type_without_dense_vectors_is_refused_by_name(values: dict[str, str], reason: str, model: Path) -> None:
    change(model / "config_sentence_transformers.json", **values)
    with pytest.raises(EncoderError, match=reason):
        exported_encoder(str(model))


def test_saved_splade_and_colbert_models_are_refused(tmp_path: Path) -> None:
    from sentence_transformers import MultiVectorEncoder, SparseEncoder
    from transformers import BertConfig, BertForMaskedLM

    source = transformer_folder(tmp_path / "bert", *BERT)
    MultiVectorEncoder(str(source), device="cpu").save(str(tmp_path / "late"), create_model_card=False)
    BertForMaskedLM(BertConfig(**BERT[1])).save_pretrained(source)
    SparseEncoder(str(source), device="cpu").save(str(tmp_path / "sparse"), create_model_card=False)
    with pytest.raises(EncoderError, match="late interaction, such as ColBERT"):
        exported_encoder(str(tmp_path / "late"))
    with pytest.raises(EncoderError, match="sparse vectors of words"):
        exported_encoder(str(tmp_path / "sparse"))


@pytest.mark.parametrize(
    ("name", "architecture", "reason"),
    [
        ("colbertv2", "HF_ColBERT", "several vectors"),
        ("splade-cocondenser", "BertForMaskedLM", "sparse vectors"),
        ("reranker", "BertForSequenceClassification", "scores pairs"),
    ],
)
def test_plain_folder_of_another_kind_is_refused(name: str, architecture: str, reason: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture]}), encoding="utf-8")
    with pytest.raises(EncoderError, match=reason):
        exported_encoder(str(folder))


def test_plain_folder_records_assumed_pooling(tmp_path: Path) -> None:
    config = ExportedEncoder.load(exported_encoder(str(transformer_folder(tmp_path / "bert", *BERT)))).config
    assert (config.pooling, config.assumed_pooling) == ("mean", True)


@pytest.mark.parametrize("place", ["module", "architecture"])
def test_custom_code_is_refused_in_one_sentence(place: str, model: Path) -> None:
    if place == "module":
        modules = json.loads((model / "modules.json").read_text())
        modules[0]["type"] = "custom_st.Transformer"
        (model / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    else:
        change(
            model / "config.json", model_type="own", auto_map={"AutoConfig": "own.OwnConfig", "AutoModel": "own.Own"}
        )
        (model / "own.py").write_text("raise SystemExit('executed')\n", encoding="utf-8")
    with pytest.raises(EncoderError, match="needs Python code of its own .*, which Taugate does not run; choose"):
        exported_encoder(str(model))


def test_length_beyond_positions_is_named(model: Path) -> None:
    change(model / "sentence_bert_config.json", max_seq_length=500)  # the model has 130 positions
    with pytest.raises(EncoderError, match="length of 500 tokens, but has only 130 positions; correct max_seq_length"):
        exported_encoder(str(model))


@pytest.mark.slow
def test_t5_without_length_reads_512_tokens(tmp_path: Path) -> None:
    path = model_folder(tmp_path, *EXPORTED["T5 (gtr, sentence-t5)"], max_tokens=None)
    encoder = ExportedEncoder.load(exported_encoder(str(path)))
    assert encoder.config.max_length == 512
    assert [len(tokens.ids) for tokens in encoder.tokenize(["a" * 2000], "document")] == [512]


def test_weights_are_counted_from_headers(dense: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = ModelFolder.read(dense, "model")
    model = SentenceTransformer(str(dense), device="cpu")
    assert folder.parameters == sum(weights.numel() for weights in model.parameters())
    assert folder.stored_type == "F32"
    assert folder.pools_prompt


def test_model_beyond_memory_is_refused_before_loading(model: Path) -> None:
    header = json.dumps({"w": {"dtype": "F16", "shape": [1_000_000, 1_000_000], "data_offsets": [0, 0]}}).encode()
    (model / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(EncoderError, match=r"has 1000\.0 billion weights, whose export takes about .* GiB"):
        exported_encoder(str(model))
