"""A graph for long texts: one text of 8,192 tokens takes little memory, and its vector is that of PyTorch."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from taugate.calibration.encoding.encoder_options import InputOptions
from taugate.calibration.encoding.source import exported_encoder
from tests.calibration.export.architectures import EXPORTED, model_folder

pytestmark = pytest.mark.model
TOKENS = 8192
MODEL = "ModernBERT (gte-modernbert)"
# Four heads: whole matrices of their scores would take more than 1 GiB.
SHAPE = {"hidden_size": 128, "num_attention_heads": 4, "max_position_embeddings": TOKENS, "local_attention": 128}
# Prints the peak memory of the encoding of one text, in kB, and writes its vector.
_ENCODE = """
import sys
from pathlib import Path
import numpy as np
from taugate.retrieval.encoder.encoder import ExportedEncoder
encoder = ExportedEncoder.load(Path(sys.argv[1]))
(tokens,) = encoder.tokenize(["threshold " * (int(sys.argv[2]) // 10)], "document")
np.save(sys.argv[3], encoder.embed([tokens]))
print(len(tokens.ids), next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small ModernBERT with the window of a real one."""
    config_class, parameters = EXPORTED[MODEL]
    return model_folder(tmp_path_factory.mktemp("long"), config_class, parameters | SHAPE, max_tokens=TOKENS)


def encoded(model: Path, tokens: int, target: Path) -> tuple[int, int, np.ndarray]:
    """Encode a text of about so many tokens; returns its tokens, the peak memory in bytes and its vector."""
    folder = exported_encoder(str(model), InputOptions(max_length=TOKENS))
    arguments = [sys.executable, "-c", _ENCODE, str(folder), str(tokens), str(target)]
    run = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    length, peak = (int(number) for number in run.stdout.split())
    return length, peak << 10, np.load(target)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak memory from /proc")
def test_text_of_8192_tokens_is_encoded_in_one_gib(model: Path, tmp_path: Path) -> None:
    length, peak, _ = encoded(model, 2 * TOKENS, tmp_path / "vector.npy")
    assert length == TOKENS
    assert peak < 1 << 30


def test_long_text_equals_pytorch(model: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    length, _, vector = encoded(model, 2000, tmp_path / "vector.npy")
    assert length == 2002
    expected = SentenceTransformer(str(model), device="cpu").encode(["threshold " * 200], normalize_embeddings=True)
    np.testing.assert_allclose(vector, expected, atol=1e-6)
