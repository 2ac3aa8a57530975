"""An embedding depends on its text only, not on the batch, the order or the threads."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
import zaragoza_construction_faq
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from taugate.errors import EncoderError
from taugate.release.encoder import CONFIG, MODEL, TOKENIZER
from taugate.retrieval import hardware
from taugate.retrieval.encoder.bert import Graph
from taugate.retrieval.encoder.encoder import ExportedEncoder, UnreadCounter
from tests.fake_encoder import DIMENSION, MAX_LENGTH, write_fake_encoder

TEXTS = [entry["a"] for entry in zaragoza_construction_faq.load(lang="en")][:200]


def test_vectors_are_unit_float32_in_order(encoder: Path) -> None:
    loaded = ExportedEncoder.load(encoder)
    vectors = loaded.encode(TEXTS, "document")
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), DIMENSION)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(loaded.encode(TEXTS[::-1], "document"), vectors[::-1])


def test_vector_is_independent_of_batch(encoder: Path) -> None:
    one, two = ExportedEncoder.load(encoder, threads=1), ExportedEncoder.load(encoder, threads=2)
    together = one.encode(TEXTS, "document")
    for row in range(0, len(TEXTS), 7):
        np.testing.assert_array_equal(one.encode([TEXTS[row]], "document")[0], together[row])
    np.testing.assert_array_equal(two.encode(TEXTS, "document"), together)


@pytest.mark.gpu
def test_gpu_gives_the_vectors_of_processors(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hardware.cuda_available():
        pytest.skip("no GPU, or a build of onnxruntime without CUDA")
    on_gpu = ExportedEncoder.load(encoder)
    assert isinstance(on_gpu._model, Graph)
    assert on_gpu._model.on_gpu
    monkeypatch.setattr(hardware, "cuda_available", lambda: False)
    on_processors = ExportedEncoder.load(encoder)
    np.testing.assert_allclose(on_gpu.encode(TEXTS, "document"), on_processors.encode(TEXTS, "document"), atol=1e-5)


@pytest.mark.parametrize("multiple", [2, 4, 7])
def test_padding_keeps_vectors_and_fills_batches(
    encoder: Path, tmp_path: Path, multiple: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text is padded by its own length alone, so that company still does not show; never beyond what is read."""
    plain = ExportedEncoder.load(encoder)
    folder = Path(shutil.copytree(encoder, tmp_path / "padded"))
    config = plain.config.model_copy(update={"pad_multiple": multiple})
    (folder / CONFIG).write_text(config.model_dump_json(), encoding="utf-8")
    padded = ExportedEncoder.load(folder)
    shapes: list[tuple[int, int]] = []
    graph = padded._model
    assert isinstance(graph, Graph)
    session = graph._session

    def run(names: None, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        shapes.append(feed["input_ids"].shape)
        return session.run(names, feed)

    monkeypatch.setattr(graph, "_session", SimpleNamespace(run=run))
    texts = [*TEXTS, "house " * 2 * MAX_LENGTH]
    together = padded.encode(texts, "document")
    np.testing.assert_allclose(together, plain.encode(texts, "document"), atol=1e-6)
    assert all(tokens % multiple == 0 or tokens == MAX_LENGTH for _, tokens in shapes)
    assert max(tokens for _, tokens in shapes) == MAX_LENGTH
    for row in range(0, len(texts), 7):
        np.testing.assert_array_equal(padded.encode([texts[row]], "document")[0], together[row])


def test_truncated_text_is_marked(encoder: Path) -> None:
    loaded = ExportedEncoder.load(encoder)
    short, long = loaded.tokenize(["a b c", "a " * (MAX_LENGTH + 1)], "document")
    assert (short.truncated, len(short.ids)) == (False, 3)
    assert (long.truncated, len(long.ids)) == (True, MAX_LENGTH)


def test_text_without_tokens_has_zero_vector(encoder: Path) -> None:
    vectors = ExportedEncoder.load(encoder).encode(["   ", "house"], "query")
    assert not vectors[0].any()
    assert vectors[1].any()


def test_prompts_apply_to_their_role(tmp_path: Path) -> None:
    folder = write_fake_encoder(tmp_path / "encoder", ["query passage house"])
    loaded = ExportedEncoder.load(folder)
    config = loaded.config.model_copy(update={"query_prompt": "query ", "document_prompt": "passage "})
    (folder / CONFIG).write_text(config.model_dump_json(), encoding="utf-8")
    prompted = ExportedEncoder.load(folder)
    np.testing.assert_array_equal(prompted.encode(["house"], "query"), loaded.encode(["query house"], "query"))
    np.testing.assert_array_equal(prompted.encode(["house"], "document"), loaded.encode(["passage house"], "document"))


@pytest.mark.parametrize("name", [CONFIG, MODEL, TOKENIZER])
def test_missing_or_broken_file_is_refused(tmp_path: Path, name: str) -> None:
    folder = write_fake_encoder(tmp_path / "encoder", ["house"])
    (folder / name).write_bytes(b"\x00 not what it was")
    with pytest.raises(EncoderError, match=name):
        ExportedEncoder.load(folder)
    (folder / name).unlink()
    with pytest.raises(EncoderError, match=name):
        ExportedEncoder.load(folder)


def test_nan_embeddings_are_refused(tmp_path: Path) -> None:
    import onnx
    from onnx import numpy_helper

    folder = write_fake_encoder(tmp_path / "encoder", ["house roof"])
    model = onnx.load(folder / MODEL)
    weights = numpy_helper.to_array(model.graph.initializer[0]).copy()
    weights[1] = np.nan
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "weights"))
    onnx.save(model, folder / MODEL)
    with pytest.raises(EncoderError, match="NaN"):
        ExportedEncoder.load(folder).encode(["roof", "house"], "query")


def test_build_for_gpus_without_gpu_is_logged(
    encoder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(hardware, "has_driver", lambda: False)
    hardware.new_session(encoder / "model.onnx", onnxruntime.SessionOptions())
    (record,) = caplog.records
    assert "no GPU is visible" in record.__dict__["fields"]["reason"]


WORD_PIECE = Tokenizer(models.WordPiece({"[UNK]": 0, "pump": 1, "##s": 2, "a": 3, "é": 4}, unk_token="[UNK]"))
WORD_PIECE.normalizer = normalizers.BertNormalizer(strip_accents=True)
WORD_PIECE.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
UNIGRAM = Tokenizer(models.Unigram([("x", -1.0), ("<unk>", 0.0), ("pump", -2.0), ("▁", -3.0), ("s", -3.0)], unk_id=1))
UNIGRAM.pre_tokenizer = pre_tokenizers.Metaspace()
CHARACTERS = Tokenizer(models.BPE({"a": 0, "<unk>": 1}, [], unk_token="<unk>"))
BYTES = Tokenizer(
    models.BPE({each: place for place, each in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, [])
)
BYTES.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
BYTES.decoder = decoders.ByteLevel()


@pytest.mark.parametrize(
    ("tokenizer", "text", "share"),
    [
        (WORD_PIECE, "pump pumps", 0.0),
        (WORD_PIECE, "pump ทีม", 2 / 6),  # a mark of ทีม does not count
        (WORD_PIECE, "pump pump🙂", 5 / 9),  # the whole word is one unknown token
        (WORD_PIECE, "p" * 101, 1.0),
        (WORD_PIECE, "\ue000", 1.0),  # which the normalizer leaves out
        (WORD_PIECE, "pump \u0301\u200b", 0.0),
        (WORD_PIECE, " ", 1.0),
        (UNIGRAM, "pumps x", 0.0),
        (UNIGRAM, "pump ทีม", 2 / 6),
        (CHARACTERS, "abba", 0.5),
        (BYTES, "ทีม 🙂 \ue000", 0.0),
    ],
)
def test_share_counts_unknown_characters(tokenizer: Tokenizer, text: str, share: float) -> None:
    assert UnreadCounter(tokenizer).share(text, tokenizer.encode(text)) == pytest.approx(share)


def test_share_excludes_prompt() -> None:
    counter, prompt = UnreadCounter(WORD_PIECE), "pump "
    frame = len(WORD_PIECE.encode(prompt).ids)
    for text, share in (("ทีม", 1.0), ("pump", 0.0), ("pump ท", 0.2), ("\ue000", 1.0)):
        encoding = WORD_PIECE.encode(prompt + text)
        assert counter.share(prompt + text, encoding, start=len(prompt), frame=frame) == pytest.approx(share)


def test_share_excludes_truncated_part() -> None:
    tokenizer = Tokenizer.from_str(WORD_PIECE.to_str())
    tokenizer.enable_truncation(2)
    encoding = tokenizer.encode("pump ทท pump pump pump")
    assert UnreadCounter(tokenizer).share("pump ทท pump pump pump", encoding) == pytest.approx(2 / 6)
