"""The releases that are compared: what each lets through to a language model."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checkout import environment
from benchmarks.rag.halves import SPLIT
from taugate_client import TaugateClient
from tests.service_process import ServiceProcess

K = 3  # passages: what a small model can read
_READY_SECONDS = 600  # on a machine that does other things as well
UNCUT = -1.0  # as a threshold of similarity: no cosine is below it


@dataclass(frozen=True)
class Policy:
    """options: of `taugate calibrate`; threshold: sent with each search, None for what the release has."""

    name: str
    options: tuple[str, ...]
    threshold: float | None = None


POLICIES = (
    Policy("without τ", (), UNCUT),
    Policy("τ of the papers' rule", ()),
    Policy("τ with `--max-loss 0.02`", ("--max-loss", "0.02")),
    Policy("refusals, `--max-answered 0.9 --max-empty 0.3`", ("--max-answered", "0.9", "--max-empty", "0.3")),
    Policy("refusals, `--max-answered 0.5`", ("--max-answered", "0.5")),
)


@contextmanager
def served(options: tuple[str, ...], data: Path, work: Path) -> Iterator[TaugateClient]:
    """Calibrate, unless that was done before, and serve.

    Args:
        options: Of the calibration.
        data: The data set.
        work: For releases.
    """
    releases = work / ("-".join(options).replace("--", "") or "plain")
    if not releases.exists():
        command = [sys.executable, "-m", "taugate", "calibrate", str(data), "--releases", str(releases)]
        subprocess.run([*command, "--split", SPLIT, "--k", str(K), *options], env=environment(), check=True)
    with (
        ServiceProcess(releases) as service,
        TaugateClient(f"http://127.0.0.1:{service.ready(_READY_SECONDS).port}", timeout=60) as client,
    ):
        yield client
