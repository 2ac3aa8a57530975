"""TEST_KERNEL gives a process the paths of another processor, or none; a wrong value is one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

kernel = pytest.importorskip("taugate_kernel.kernel", reason="needs a compiler at installation")
_PRINT = "from taugate.retrieval.encoder.bert import kernel; print(*kernel().paths(0) if kernel() else ['none'])"
_FLAGS = Path("/proc/cpuinfo").read_text("utf-8").split() if sys.platform == "linux" else ()
_ALL = ("avx512", "avx2", "plain")


def paths(chosen: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "TEST_KERNEL": chosen}
    return subprocess.run([sys.executable, "-c", _PRINT], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("chosen", [*kernel.paths(0), "none"])
def test_chosen_path_is_fastest_of_process(chosen: str) -> None:
    slower = _ALL[_ALL.index(chosen) :] if chosen in _ALL else ("none",)
    assert paths(chosen).stdout.split() == [*slower]


def test_empty_choice_leaves_all_paths() -> None:
    assert paths("").stdout.split()[-1] == "plain"


@pytest.mark.parametrize("chosen", ["AVX2", "sse"])
def test_wrong_choice_is_one_line(chosen: str) -> None:
    done = paths(chosen)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"TEST_KERNEL={chosen}: must be avx512, avx2, plain or none\n"


@pytest.mark.skipif("avx512bw" in _FLAGS, reason="this processor has AVX-512")
def test_path_without_processor_is_one_line() -> None:
    done = paths("avx512")
    assert (done.returncode, done.stderr) == (1, "TEST_KERNEL=avx512: this processor does not have it\n")
