"""The kernel returns the same bits by every path and in any company, is near float32, and rejects what does not fit."""

from pathlib import Path

import numpy as np
import pytest
import zaragoza_construction_faq

from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder, int8_encoder
from taugate.calibration.export.bert_graph import find_bert
from taugate.errors import EncoderError
from taugate.retrieval.encoder import bert
from taugate.retrieval.encoder.bert import WEIGHTS, BertModel
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.storage.tensors import map_tensors, write_tensors
from tests.fake_encoder import write_fake_encoder

kernel = pytest.importorskip("taugate.retrieval.encoder.kernel", reason="needs a compiler at installation")
pytestmark = [pytest.mark.model, pytest.mark.skipif(not bert.is_supported(), reason="needs AVX2")]
LENGTHS = [1, 2, 3, 5, 15, 16, 17, 33, 64, 200]  # around the numbers of rows and keys that are computed at once


@pytest.fixture(scope="module")
def encoders() -> tuple[ExportedEncoder, ExportedEncoder]:
    """all-MiniLM-L6-v2 in float32, and in int8 by factors from English answers of the sample."""
    folder = exported_encoder(DEFAULT_ENCODER)
    answers = [entry["a"][:120] for entry in zaragoza_construction_faq.load(lang="en")[:100]]
    return ExportedEncoder.load(folder), ExportedEncoder.load(int8_encoder(folder, answers))


@pytest.fixture(scope="module")
def texts(encoders: tuple[ExportedEncoder, ExportedEncoder]) -> list[list[int]]:
    """Random token ids of every length."""
    rng = np.random.default_rng(0)
    return [rng.integers(1000, 30_000, size=length).tolist() for length in LENGTHS]


@pytest.mark.parametrize("path", kernel.paths())
def test_path_of_processor_returns_bits_of_plain_c(
    encoders: tuple[ExportedEncoder, ExportedEncoder], texts: list[list[int]], path: str
) -> None:
    weights = encoders[1].folder / WEIGHTS
    expected = BertModel(weights, 1, "plain").run(texts[:6])
    assert BertModel(weights, 1, path).run(texts[:6]).tobytes() == expected.tobytes()


def test_vector_alone_equals_vector_in_company(
    encoders: tuple[ExportedEncoder, ExportedEncoder], texts: list[list[int]]
) -> None:
    weights = encoders[1].folder / WEIGHTS
    together = BertModel(weights, 2).run(texts * 20)
    alone = np.vstack([BertModel(weights, 1).run([text]) for text in texts])
    assert together[: len(texts)].tobytes() == together[-len(texts) :].tobytes() == alone.tobytes()


def test_model_of_graph_gives_vectors_of_graph(encoders: tuple[ExportedEncoder, ExportedEncoder]) -> None:
    """Heads, norms and positions are found: in float32 the model differs from the graph by rounding."""
    float32, _ = encoders
    model = find_bert(float32)
    assert model is not None
    text = "who pays for hidden defects in the walls of a house?"
    own, _ = model.forward(float32.tokenize([text], "query")[0].ids)
    assert np.abs(own - float32.encode([text], "query")[0]).max() < 1e-6


def test_similarity_is_near_float32(encoders: tuple[ExportedEncoder, ExportedEncoder]) -> None:
    """On questions and answers that set no factor; docs/benchmarks/encoder.md has four data sets."""
    float32, int8 = encoders
    entries = zaragoza_construction_faq.load(lang="en")[100:200]
    answers = float32.encode([entry["a"] for entry in entries], "document")
    questions = [entry["q"] for entry in entries]
    differences = np.abs((float32.encode(questions, "query") - int8.encode(questions, "query")) @ answers.T)
    assert differences.mean() <= 0.0015


@pytest.mark.parametrize(
    "ids, ends",
    [
        ([5], [2]),
        ([5, 6], [1]),
        ([5, 6], [2, 2]),
        ([5, 6], [2, 1]),
        ([-1], [1]),
        ([30_522], [1]),
        ([7] * 513, [513]),
        ([], []),
    ],
)
def test_texts_that_do_not_fit_are_rejected(
    encoders: tuple[ExportedEncoder, ExportedEncoder], ids: list[int], ends: list[int]
) -> None:
    model = BertModel(encoders[1].folder / WEIGHTS, 1)
    vectors = np.zeros((len(ends), 384), dtype=np.float32)
    with pytest.raises(ValueError, match="do not fit the model"):
        kernel.encode(model._model, np.array(ids, dtype=np.int32), np.array(ends, dtype=np.int32), vectors, 0)


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("size", [-1, 0, 1 << 28, (1 << 31) - 1])
def test_sizes_beyond_limits_are_rejected(place: int, size: int) -> None:
    sizes = [8, 8, 64, 64, 4, 1]
    sizes[place] = size
    with pytest.raises(ValueError, match="sizes that this kernel does not support"):
        kernel.model(*sizes, 0, 1e-12, [])


@pytest.mark.parametrize("name", ["words", "0.qkv.weight", "3.up.scale", "5.norm2", "0.down.smooth"])
def test_damaged_weights_are_one_error(
    encoders: tuple[ExportedEncoder, ExportedEncoder], tmp_path: Path, name: str
) -> None:
    arrays = dict(map_tensors(encoders[1].folder / WEIGHTS))
    for damaged in (arrays[name][..., :-1], arrays[name].astype(np.float64), None):
        changed = {key: array for key, array in arrays.items() if key != name}
        if damaged is not None:
            changed[name] = damaged
        write_tensors(tmp_path / WEIGHTS, changed)
        with pytest.raises(EncoderError, match="not an int8 model"):
            BertModel(tmp_path / WEIGHTS, 1)


def test_graph_without_layers_is_not_taken_for_bert(tmp_path: Path) -> None:
    encoder = ExportedEncoder.load(write_fake_encoder(tmp_path / "encoder", ["a text", "another one"]))
    assert find_bert(encoder) is None
