"""The kernel returns the same bits by every path and in any company, is near float32, and rejects what does not fit."""

import json
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zaragoza_construction_faq

from taugate.calibration.encoding.source import DEFAULT_ENCODER, CheaperPrecision, cheaper_encoder, exported_encoder
from taugate.calibration.export.bert_graph import find_bert
from taugate.errors import EncoderError
from taugate.release.encoder import LAYOUT, WEIGHTS, Precision
from taugate.retrieval.encoder import bert
from taugate.retrieval.encoder.bert import PRECISIONS, BertModel, Graph
from taugate.retrieval.encoder.encoder import GRAPH_FILES, ExportedEncoder
from taugate.storage.tensors import map_tensors, write_tensors
from tests.fake_encoder import write_fake_encoder

kernel = pytest.importorskip("taugate_kernel.kernel", reason="needs a compiler at installation")
pytestmark = [pytest.mark.model, pytest.mark.skipif(bert.processor_path("int8") is None, reason="needs AVX2")]
LENGTHS = [1, 2, 3, 5, 15, 16, 17, 33, 64, 200]  # around the numbers of rows and keys that are computed at once
CHEAPER: tuple[CheaperPrecision, ...] = ("int8", "bfloat16")
MIN_RATIO = 60  # of times; measured: 180 to 200
Encoders = dict[Precision, ExportedEncoder]


@pytest.fixture(scope="module")
def encoders() -> Encoders:
    """all-MiniLM-L6-v2 in every precision, and in int8 by factors from English answers of the sample."""
    folder = exported_encoder(DEFAULT_ENCODER)
    answers = [entry["a"][:120] for entry in zaragoza_construction_faq.load(lang="en")[:100]]
    cheaper = {name: ExportedEncoder.load(cheaper_encoder(folder, name, answers)) for name in CHEAPER}
    return {"float32": ExportedEncoder.load(folder), **cheaper}


@pytest.fixture(scope="module")
def texts() -> list[list[int]]:
    """Random token ids of every length."""
    rng = np.random.default_rng(0)
    return [rng.integers(1000, 30_000, size=length).tolist() for length in LENGTHS]


def weights_file(encoder: ExportedEncoder) -> Path:
    """What the kernel reads of an encoder."""
    return encoder.folder / (WEIGHTS if encoder.config.runtime == "kernel" else LAYOUT)


@pytest.mark.parametrize("precision", [*CHEAPER, "float32"])
@pytest.mark.parametrize("path", ["avx512", "avx2"])
def test_path_of_processor_returns_bits_of_plain_c(
    encoders: Encoders, texts: list[list[int]], precision: Precision, path: str
) -> None:
    if path not in kernel.paths(PRECISIONS[precision]):
        pytest.skip(f"this processor has no {path} for {precision}")
    weights = weights_file(encoders[precision])
    expected = BertModel(weights, precision, 1, "plain").run(texts[:6])
    assert BertModel(weights, precision, 1, path).run(texts[:6]).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("precision", "path"),
    [(precision, path) for precision in PRECISIONS for path in kernel.paths(PRECISIONS[precision])],
)
def test_vector_alone_equals_vector_in_company(
    encoders: Encoders, texts: list[list[int]], precision: Precision, path: str
) -> None:
    weights = weights_file(encoders[precision])
    chosen, times = (texts[:5], 2) if path == "plain" else (texts, 5)  # plain C takes a hundred times as long
    together = BertModel(weights, precision, 2, path).run(chosen * times)
    alone = np.vstack([BertModel(weights, precision, 1, path).run([text]) for text in chosen])
    assert together[: len(chosen)].tobytes() == together[-len(chosen) :].tobytes() == alone.tobytes()


def graph_alone(encoder: ExportedEncoder, folder: Path) -> ExportedEncoder:
    """Copy a float32 encoder without the file that the kernel reads."""
    for name in GRAPH_FILES:
        shutil.copy(encoder.folder / name, folder)
    return ExportedEncoder.load(folder)


def test_kernel_in_float32_gives_vectors_of_graph(encoders: Encoders, tmp_path: Path) -> None:
    """Heads, norms and positions are found: the two differ by rounding, far less than golden queries may."""
    float32, entries = encoders["float32"], zaragoza_construction_faq.load(lang="en")[:50]
    graph = graph_alone(float32, tmp_path)
    assert isinstance(graph._model, Graph)
    assert isinstance(float32._model, BertModel) == (bert.processor_path("float32") is not None)
    assert graph.sha256 == float32.sha256
    texts = [entry["a"] for entry in entries]
    assert np.abs(graph.encode(texts, "document") - float32.encode(texts, "document")).max() < 1e-6


def test_encoder_without_kernel_runs_graph(encoders: Encoders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bert, "kernel", lambda: None)
    assert isinstance(ExportedEncoder.load(encoders["float32"].folder)._model, Graph)


@pytest.mark.skipif(bert.processor_path("float32") is None, reason="needs AVX-512")
@pytest.mark.parametrize(
    "damage",
    [
        lambda layout: layout["tensors"].update(words=[1 << 40, 30_522, 384]),
        lambda layout: layout["tensors"].update(words=[-4, 30_522, 384]),
        lambda layout: layout["tensors"].update(words=[]),
        lambda layout: layout["tensors"].update({"0.out.weight": [0, 384, 383]}),
        lambda layout: layout["tensors"].update({"norm.bias": [0, 1 << 62, 1 << 62]}),
        lambda layout: layout["tensors"].pop("5.norm2.bias"),
        lambda layout: layout.update(heads=5),
        lambda layout: layout.update(first_position=1 << 40),
        lambda layout: layout.update(more=1),
    ],
)
def test_damaged_layout_is_one_error(
    encoders: Encoders, tmp_path: Path, damage: Callable[[dict[str, Any]], object]
) -> None:
    float32 = encoders["float32"]
    graph_alone(float32, tmp_path)
    layout = json.loads((float32.folder / LAYOUT).read_bytes())
    damage(layout)
    (tmp_path / LAYOUT).write_text(json.dumps(layout), "utf-8")
    with pytest.raises(EncoderError, match="not a model in float32"):
        ExportedEncoder.load(tmp_path)


@pytest.mark.parametrize(("precision", "limit"), [("int8", 0.0015), ("bfloat16", 0.0003)])
def test_similarity_is_near_float32(encoders: Encoders, precision: Precision, limit: float) -> None:
    """On questions and answers that set no factor; benchmarks/results/encoder.md has four data sets."""
    float32, cheaper = encoders["float32"], encoders[precision]
    entries = zaragoza_construction_faq.load(lang="en")[100:200]
    answers = float32.encode([entry["a"] for entry in entries], "document")
    questions = [entry["q"] for entry in entries]
    differences = np.abs((float32.encode(questions, "query") - cheaper.encode(questions, "query")) @ answers.T)
    assert 0 < differences.mean() <= limit


def test_bfloat16_weights_are_rounded_to_nearest(encoders: Encoders) -> None:
    """No weight is further from its source than half a unit of 8 bits."""
    model = find_bert(encoders["float32"].folder)
    assert model is not None
    halves = map_tensors(encoders["bfloat16"].folder / WEIGHTS)["0.qkv.weight"]
    widened = (halves.astype(np.uint32) << 16).view(np.float32).astype(float)
    exact = model.layers[0].products["qkv"].weight.astype(float)
    assert (np.abs(widened - exact) <= np.abs(exact) * 2.0**-8 + 2.0**-49).all()


@pytest.mark.slow
@pytest.mark.parametrize("precision", CHEAPER)
def test_path_of_processor_is_much_faster_than_plain_c(
    encoders: Encoders, texts: list[list[int]], precision: Precision
) -> None:
    """A compiler that copies the sums between registers loses most of what the instructions gain.

    Processor time of the two paths in turns, as the median of ratios.
    """
    if kernel.paths(PRECISIONS[precision])[0] != "avx512":
        pytest.skip("needs AVX-512 with VNNI or BF16")
    weights = encoders[precision].folder / WEIGHTS
    fast, plain = (BertModel(weights, precision, 1, path) for path in ("avx512", "plain"))
    ratios = [seconds(lambda: plain.run(texts[5:8])) / seconds(lambda: fast.run(texts[5:8])) for _ in range(3)]
    assert statistics.median(ratios) > MIN_RATIO, ratios


def seconds(run: Callable[[], object]) -> float:
    """Processor time of one run in this thread."""
    began = time.thread_time()
    run()
    return time.thread_time() - began


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
def test_texts_that_do_not_fit_are_rejected(encoders: Encoders, ids: list[int], ends: list[int]) -> None:
    model = BertModel(encoders["int8"].folder / WEIGHTS, "int8", 1)
    vectors = np.zeros((len(ends), 384), dtype=np.float32)
    with pytest.raises(ValueError, match="do not fit the model"):
        kernel.encode(model._model, np.array(ids, dtype=np.int32), np.array(ends, dtype=np.int32), vectors, 0)


@pytest.mark.parametrize("place", range(1, 8))
@pytest.mark.parametrize("size", [-1, 0, 1 << 28, (1 << 31) - 1])
def test_sizes_beyond_limits_are_rejected(place: int, size: int) -> None:
    sizes = [0, 8, 1, 8, 64, 64, 4, 1, 0]
    sizes[place] = size
    with pytest.raises(ValueError, match="sizes that this kernel does not support"):
        kernel.model(*sizes, 1e-12, [])


@pytest.mark.parametrize("precision", [-1, 3])
def test_unknown_precision_is_rejected(precision: int) -> None:
    with pytest.raises(ValueError, match="a precision that this kernel does not have"):
        kernel.paths(precision)
    with pytest.raises(ValueError, match="a precision that this kernel does not have"):
        kernel.model(precision, 8, 1, 8, 64, 64, 4, 1, 0, 1e-12, [])


@pytest.mark.parametrize("precision", CHEAPER)
@pytest.mark.parametrize("name", ["words", "0.qkv.weight", "3.up.bias", "5.norm2", "0.down.smooth"])
def test_damaged_weights_are_one_error(encoders: Encoders, tmp_path: Path, precision: Precision, name: str) -> None:
    arrays = dict(map_tensors(encoders[precision].folder / WEIGHTS))
    if name not in arrays:
        pytest.skip("only int8 has factors")
    for damaged in (arrays[name][..., :-1], arrays[name].astype(np.float64), None):
        changed = {key: array for key, array in arrays.items() if key != name}
        if damaged is not None:
            changed[name] = damaged
        write_tensors(tmp_path / WEIGHTS, changed)
        with pytest.raises(EncoderError, match=f"not a model in {precision}"):
            BertModel(tmp_path / WEIGHTS, precision, 1)


@pytest.mark.parametrize(("precision", "weight"), [("int8", -128), ("bfloat16", 0x2680)])
def test_weight_on_which_paths_disagree_is_rejected(
    encoders: Encoders, tmp_path: Path, precision: Precision, weight: int
) -> None:
    """In bfloat16 that is 2^-50."""
    arrays = dict(map_tensors(encoders[precision].folder / WEIGHTS))
    arrays["0.out.weight"] = arrays["0.out.weight"].copy()
    arrays["0.out.weight"][0, 0] = weight
    write_tensors(tmp_path / WEIGHTS, arrays)
    with pytest.raises(EncoderError, match=f"not a model in {precision}"):
        BertModel(tmp_path / WEIGHTS, precision, 1)


def test_weights_of_another_precision_are_rejected(encoders: Encoders) -> None:
    with pytest.raises(EncoderError, match="not a model in bfloat16"):
        BertModel(encoders["int8"].folder / WEIGHTS, "bfloat16", 1)


def test_graph_without_layers_is_not_taken_for_bert(tmp_path: Path) -> None:
    assert find_bert(write_fake_encoder(tmp_path / "encoder", ["a text", "another one"])) is None
