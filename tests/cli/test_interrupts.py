"""Ctrl-C at many moments of a real process: exit code 130, one line, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode
from taugate.calibration.progress import Job
from taugate.retrieval.encoder.encoder import ExportedEncoder
from tests.calibration.commands import arguments
from tests.interruptible import interruptible

# Modules whose import has just ended when the signal is sent, in the order of a calibration.
MOMENTS = [
    "taugate.cli.terminal.process",
    "click",
    "taugate.errors",
    "numpy",
    "pydantic",
    "onnxruntime",
    "taugate.calibration.settings",
    "taugate.cli.terminal.promotion",
    "scipy.special",
    "sklearn.linear_model",
    "taugate.calibration.study.study",
    "jinja2",
]
# Just after this package, numpy, a native library and the study; `make test-exhaustive` has the others.
SOME = {"taugate.cli.terminal.process", "numpy", "onnxruntime", "taugate.calibration.study.study"}


def start(data: Path, folder: Path, encoder: Path, *flags: str) -> subprocess.Popen[str]:
    """`taugate calibrate` with a folder of its own for temporary files."""
    (folder / "tmp").mkdir()
    words = [sys.executable, *flags, "-m", "taugate", *arguments(data, folder / "releases", encoder)]
    environment = os.environ | {"TMPDIR": str(folder / "tmp"), "TAUGATE_CACHE": str(folder / "cache")}
    return subprocess.Popen(
        interruptible(words), env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def ended_quietly(process: subprocess.Popen[str], folder: Path) -> None:
    """Check the exit code, stderr less what `-X importtime` prints, stdout, and what is left."""
    out, error = process.communicate(timeout=60)
    said = [
        line
        for line in error.splitlines()
        if not line.startswith(("import time:", "Read ", "Prepared ", "Encoded ", "the encoder ", "warning: "))
    ]
    assert said == ["taugate: interrupted"]
    assert (process.returncode, out) == (130, "")
    assert [path for path in (folder / "tmp").iterdir() if path.name.startswith("taugate")] == []
    assert not [*(folder / "releases").glob("*/manifest.json")]


@pytest.mark.parametrize(
    ("module", "number"),
    [
        pytest.param(module, number, marks=[] if module in SOME else pytest.mark.exhaustive)
        for number, modules in ((signal.SIGINT, MOMENTS), (signal.SIGTERM, MOMENTS[2::4]))
        for module in modules
    ],
)
@pytest.mark.slow
def test_interrupt_during_import_ends_quietly(
    module: str, number: signal.Signals, sample: Path, encoder: Path, tmp_path: Path
) -> None:
    with start(sample, tmp_path, encoder, "-X", "importtime") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.rstrip().endswith((f"| {module}", f" {module}")):
                break
        else:
            pytest.fail(f"{module} was not imported")
        process.send_signal(number)
        ended_quietly(process, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.2, 0.4])
def test_interrupt_during_work_ends_quietly(seconds: float, sample: Path, encoder: Path, tmp_path: Path) -> None:
    with start(sample, tmp_path, encoder) as process:
        while not any((tmp_path / "tmp").glob("taugate-*/*")):
            assert process.poll() is None
            time.sleep(0.005)
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        if seconds < 0.2:  # later it may be done
            ended_quietly(process, tmp_path)
        else:
            error = process.communicate(timeout=60)[1]
            assert process.returncode in {0, 130}
            assert "Traceback" not in error
            assert "Exception ignored" not in error


def test_interrupted_encoding_keeps_vectors(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after a minute of encoding loses less than ten seconds of it."""
    loaded = ExportedEncoder.load(encoder)
    cache = EmbeddingCache(tmp_path / "cache.sqlite", loaded.config.dimension)
    texts = [f"text number {number} {'word ' * (number % 40)}" for number in range(4000)]
    now = [0.0]
    whole = ExportedEncoder.embed

    def slow(self: ExportedEncoder, tokens: list, progress: object = None) -> object:
        """1,000 tokens a second; interrupted after a minute."""
        now[0] += sum(len(each.ids) for each in tokens) / 1000
        if now[0] > 60:
            raise KeyboardInterrupt
        return whole(self, tokens, progress)  # type: ignore[arg-type]

    monkeypatch.setattr("taugate.calibration.encoding.corpus.time.perf_counter", lambda: now[0])
    monkeypatch.setattr(ExportedEncoder, "embed", slow)
    with pytest.raises(KeyboardInterrupt):
        encode(loaded, texts, len(texts), "document", cache, Job())
    saved = cache.get([cache.key(loaded.config.document_prompt + text) for text in texts])
    kept = [text for text in texts if cache.key(loaded.config.document_prompt + text) in saved]
    tokens = sum(len(each.ids) for each in loaded.tokenize(kept, "document"))
    assert tokens >= 50_000
