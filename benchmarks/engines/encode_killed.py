"""Kill `taugate encode`, or one of its workers, at random moments; the digest must be that of a run that nobody killed.

The encoder is the default one, on the sample data set in shards of 16 documents; one run has one worker, the next two.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.ingestion.dataset.sample import write_sample
from tests.calibration.encoding.encoding_process import EncodingProcess, shards_in

_ROWS = 16


def main() -> int:
    """Print what each run did; returns 1 where a digest differs, or a finished shard was encoded again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--kills", type=int, default=20)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="taugate-killed-") as name:
        root = Path(name)
        write_sample(root / "sample")

        def start(folder: Path, workers: int) -> EncodingProcess:
            return EncodingProcess(root / "sample", folder, DEFAULT_ENCODER, workers, _ROWS)

        whole = start(root / "whole", 0).result()["digest"]
        total = len(shards_in(root / "whole"))
        undisturbed = start(root / "undisturbed", 2)
        undisturbed.wait_for_worker()  # Ray's own start, which comes before, loses nothing
        began = time.perf_counter()
        sound = undisturbed.result()["digest"] == whole
        seconds = time.perf_counter() - began
        print(f"{total} shards; two workers take {seconds:.0f} s undisturbed, same digest: {sound}", flush=True)
        redone, round_number = 0, 0
        for kill in range(arguments.kills):
            workers, whom = 1 + kill % 2, ("command", "worker")[kill // 2 % 2]
            folder = root / f"killed-{round_number}"
            before, moment = shards_in(folder), float(rng.uniform(0, seconds))
            process = start(folder, workers)
            process.wait_for_worker()
            ended = _ended(process, moment)
            there = shards_in(folder)
            if not ended and whom == "command":
                process.kill()
            elif ended or process.kill_worker():
                ended = True
                sound &= process.result()["digest"] == whole
                round_number += 1
            else:
                whom = "command, as there was no worker yet"
                process.kill()
            again = sum(inode != shards_in(folder).get(name) for name, inode in (before | there).items())
            redone += again
            state = "same digest" if ended else f"{len(shards_in(folder))} shards there"
            print(
                f"{kill + 1}: {workers} workers, {whom} killed after {moment:.1f} s with {len(there)} of {total} "
                f"shards: {state}, {again} finished ones encoded again",
                flush=True,
            )
        last = start(root / f"killed-{round_number}", 2).result()
        sound &= last["digest"] == whole and redone == 0
    print("the same digest every time" if sound else "DIFFERENT")
    return 0 if sound else 1


def _ended(process: EncodingProcess, seconds: float) -> bool:
    try:
        process.process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
