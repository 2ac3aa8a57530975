"""Kill an adaptation at random moments, let it go on, and compare what it ends in with one that nobody killed."""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from taugate.ingestion.dataset.sample import write_sample
from taugate.storage.files import sha256_files
from tests.adaptation.training.encoders import write_small_bert

_KILLS = 10


def main() -> int:
    """Print what each run did; returns 1 where the two encoders differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--steps", type=int, default=20, help="of each recipe")
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="taugate-killed-") as name:
        folder = Path(name)
        write_sample(folder / "sample")
        model = write_small_bert(folder)
        program = [
            sys.executable,
            "-m",
            "tests.adaptation.training.adapting",
            str(folder / "sample"),
            "--split",
            "test",
        ]
        program += ["--encoder", str(model), "--budget", f"{arguments.steps}steps", "--to"]
        began = time.perf_counter()
        subprocess.run([*program, str(folder / "whole")], check=False)
        seconds = time.perf_counter() - began
        same = True
        for kill in range(_KILLS):
            moment = float(rng.uniform(0, seconds))
            process = subprocess.Popen([*program, str(folder / "killed")])
            try:
                process.wait(moment)  # it was done before its moment came: once more from the beginning
                same &= _digest(folder / "whole") == _digest(folder / "killed")
                shutil.rmtree(folder / "killed")
                print(f"{kill + 1}: done before the moment came, {moment:.1f} s", flush=True)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                print(f"{kill + 1}: killed after {moment:.1f} s", flush=True)
        subprocess.run([*program, str(folder / "killed")], check=False)
        same &= _digest(folder / "whole") == _digest(folder / "killed")
    print("the same bytes" if same else "DIFFERENT BYTES")
    return 0 if same else 1


def _digest(folder: Path) -> str:
    return sha256_files(folder, [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()])


if __name__ == "__main__":
    sys.exit(main())
