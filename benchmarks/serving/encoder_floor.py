"""The encoder alone, in a process of its own: what no service around it can pass.

Two ways, of which the faster counts: one session with all threads, as the service has it, and a session of one thread
for each processor, which has no other thread to wait for. Texts of a batch are grouped by length as in the service.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from retrieval.encoder import OnnxEncoder

_ROOT = Path(__file__).resolve().parents[2]
_WARM = 20  # texts


def ceilings(encoder: Path, texts: Sequence[str], sizes: Sequence[int], seconds: float) -> dict[int, float]:
    """Queries a second at most, for each number of texts encoded together; `seconds` for each of the two ways."""
    given = {"encoder": str(encoder), "texts": list(texts), "sizes": sorted(set(sizes)), "seconds": seconds}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve())],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
    )
    return {int(size): rate for size, rate in json.loads(done.stdout).items()}


def _batches(texts: Sequence[str], size: int) -> Iterator[list[str]]:
    """In order, again from the start when they end."""
    start = 0
    while True:
        yield [texts[(start + offset) % len(texts)] for offset in range(size)]
        start += size


def _encoded(encoder: OnnxEncoder, texts: Sequence[str], size: int, seconds: float) -> float:
    """Texts encoded a second."""
    batches = _batches(texts, size)
    began, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - began) < seconds:
        encoder.encode(next(batches), "query")
        count += size
    return count / elapsed


def main() -> None:
    """Measure what stdin asks for."""
    given = json.load(sys.stdin)
    folder, texts, seconds = Path(given["encoder"]), given["texts"], given["seconds"]
    together = OnnxEncoder.load(folder)
    processors = len(os.sched_getaffinity(0))
    apart = [OnnxEncoder.load(folder, 1) for _ in range(processors)]
    for encoder in (together, *apart):
        encoder.encode(texts[:_WARM], "query")
    best = {}
    with ThreadPoolExecutor(processors) as pool:
        for size in given["sizes"]:
            # Each in a part of the texts of its own: the same text twice at once would be kinder to the processor's cache.
            parts = [texts[number::processors] for number in range(processors)]
            alone = list(pool.map(lambda each, size=size: _encoded(*each, size, seconds), zip(apart, parts, strict=True)))
            best[size] = max(_encoded(together, texts, size, seconds), sum(alone))
    print(json.dumps(best))


if __name__ == "__main__":
    main()
