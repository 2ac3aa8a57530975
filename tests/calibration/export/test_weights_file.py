"""Encoders whose weights have a file of their own: equal to PyTorch, served from a release, adapted, in int8."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from taugate.calibration.encoding.source import exported_encoder
from taugate.calibration.export import weights
from taugate.calibration.export.model_folder import PROBES
from taugate.calibration.export.weights import quantize
from taugate.errors import ReleaseError
from taugate.release.encoder import DATA, LAYOUT, MODEL
from taugate.release.verify import verify
from taugate.retrieval.encoder.bert import processor_path
from taugate.retrieval.encoder.encoder import ExportedEncoder
from tests.calibration.commands import Capture, Printed, small
from tests.calibration.export.architectures import EXPORTED, model_folder, transformer_folder

BERT = "BERT (bge, gte, MiniLM)"
WIDTH = 64  # that the kernel can run


@pytest.fixture(scope="module")
def separate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small encoder that is exported like a large one."""
    config_class, parameters = EXPORTED[BERT]
    shape = {"vocab_size": 5000, "hidden_size": WIDTH, "intermediate_size": 128}
    path = model_folder(tmp_path_factory.mktemp("separate"), config_class, parameters | shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "SEPARATE_BYTES", 1)
        patch.setenv("TAUGATE_CACHE", str(path.parent / "cache"))
        return exported_encoder(str(path))


@pytest.mark.model
def test_separate_weights_equal_pytorch(separate: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(separate.parents[2] / "model"), device="cpu")
    vectors = ExportedEncoder.load(separate).encode(PROBES, "query")
    np.testing.assert_allclose(vectors, model.encode(PROBES, normalize_embeddings=True), atol=1e-6)
    assert (separate / LAYOUT).is_file()  # the kernel reads the same weights
    stored = onnx.load(separate / MODEL, load_external_data=False).graph.initializer
    assert [tensor.name for tensor in stored if len(tensor.raw_data) > 64] == []  # shapes and numbers of operators


@pytest.mark.model
def test_digest_covers_separate_weights(separate: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(separate, tmp_path / "copy"))
    assert ExportedEncoder.load(copy).sha256 == ExportedEncoder.load(separate).sha256
    with (copy / DATA).open("r+b") as file:
        file.write(b"\1")
    assert ExportedEncoder.load(copy).sha256 != ExportedEncoder.load(separate).sha256


@pytest.mark.model
def test_separate_weights_are_quantised(separate: Path, tmp_path: Path) -> None:
    expected = ExportedEncoder.load(separate).encode(PROBES, "query")
    shutil.copytree(separate, tmp_path / "int8", ignore=shutil.ignore_patterns("model*", LAYOUT))
    assert quantize(separate / MODEL, tmp_path / "int8" / MODEL)
    int8 = ExportedEncoder.load(tmp_path / "int8").encode(PROBES, "query")
    assert (int8 * expected).sum(axis=1).min() > 0.99


def test_release_lists_separate_weights(tmp_path: Path, capfd: Printed) -> None:
    data, encoder = small(tmp_path, 60)
    graph = onnx.load(encoder / MODEL)
    (encoder / MODEL).unlink()
    onnx.save(graph, encoder / MODEL, save_as_external_data=True, location=DATA, size_threshold=1024)
    releases = tmp_path / "releases"
    _, manifest, _ = Capture(capfd)(data, releases, encoder)
    release = releases / manifest["release_id"]
    assert manifest["files"][f"encoder/{DATA}"]["bytes"] == (release / "encoder" / DATA).stat().st_size
    verify(release)
    with (release / "encoder" / DATA).open("r+b") as file:
        file.write(b"\1\1\1\1")
    with pytest.raises(ReleaseError, match=DATA):
        verify(release)


# Prints a folder, and the peak memory before and after it is made, in kB.
_PEAK = """
import sys
from pathlib import Path
import onnx, onnxruntime, scipy.special, tokenizers
from taugate.calibration.encoding.source import cheaper_encoder
from taugate.calibration.encoding.source import exported_encoder
from taugate.calibration.export import bert_graph, weights as int8
def peak():
    return next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
if sys.argv[2] == "float32":
    from taugate.calibration.export import onnx_export
    before = peak()
    folder = exported_encoder(sys.argv[1])
else:
    before = peak()
    folder = cheaper_encoder(Path(sys.argv[1]), sys.argv[2], ["who pays for hidden defects", "roof"])
print(folder, before, peak())
"""
LARGE = {"hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 1}
SIZES: dict[str, tuple[dict[str, int], int]] = {  # with the smallest number of bytes of their weights
    "base": ({"hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 4, "vocab_size": 60_000}, 200 << 20),
    "more than 2 GiB": (LARGE | {"vocab_size": 560_000}, 2 << 30),
}


def made_within(times: float, source: Path, precision: str, weights: Path | None = None) -> Path:
    """Make an encoder in a process of its own; its peak memory is at most so many times its float32 weights."""
    arguments = [sys.executable, "-c", _PEAK, str(source), precision]
    run = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    folder, before, after = run.stdout.split()
    peak = (int(after) - int(before)) << 10
    assert peak < times * ((weights or Path(folder)) / DATA).stat().st_size
    return Path(folder)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak memory from /proc")
@pytest.mark.parametrize("size", ["base", pytest.param("more than 2 GiB", marks=pytest.mark.exhaustive)])
def test_export_takes_at_most_three_times_the_weights(
    size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "cache"))  # removed with its gigabytes when the test ends
    config_class, parameters = EXPORTED[BERT]
    larger, smallest = SIZES[size]
    path = transformer_folder(tmp_path / "large", config_class, parameters | larger, dtype="bfloat16")
    exported = made_within(3, path, "float32")
    assert (exported / DATA).stat().st_size > smallest
    for precision in ("int8", "bfloat16") if processor_path("bfloat16") else ("int8",):
        made_within(3, exported, precision, exported)
