"""The encoder alone, in a process of its own: what no service around it can pass.

Two ways, of which the faster counts: one session with all threads, as the service has it, and a session of one thread
for each processor, which has no other thread to wait for. Texts of a batch have one length, as in the service.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checkout import environment
from taugate.retrieval.encoder.encoder import ExportedEncoder, Tokens

_WARM = 20  # texts


@dataclass(frozen=True)
class Floor:
    """The speed of the encoder without any service around it.

    Attributes:
        rates: Queries a second at most, by how many are encoded together.
        milliseconds: Of one query alone, p50.
    """

    rates: dict[int, float]
    milliseconds: float


def floor_of(encoder: Path, texts: Sequence[str], sizes: Sequence[int], seconds: float) -> Floor:
    """The encoder in a folder; `seconds` for each number of texts, in each of the two ways."""
    given = {"encoder": str(encoder), "texts": list(texts), "sizes": sorted(set(sizes)), "seconds": seconds}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.serving.encoder_floor"],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    found = json.loads(done.stdout)
    return Floor({int(size): rate for size, rate in found["rates"].items()}, found["milliseconds"])


def _batches(encoder: ExportedEncoder, texts: Sequence[str], size: int) -> Iterator[list[Tokens]]:
    """Texts of one length, as soon as so many have come along; in order, again from the start when they end."""
    tokens = encoder.tokenize(texts, "query")
    waiting: dict[int, list[Tokens]] = defaultdict(list)
    for each in itertools.cycle(tokens):
        alike = waiting[encoder.padded(len(each.ids))]
        alike.append(each)
        if len(alike) == size:
            yield alike.copy()
            alike.clear()


def _times(encoder: ExportedEncoder, texts: Sequence[str], size: int, seconds: float) -> list[float]:
    """Time each call, in seconds."""
    batches, times = _batches(encoder, texts, size), []
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        batch = next(batches)
        began = time.perf_counter()
        encoder.embed(batch)
        times.append(time.perf_counter() - began)
    return times


def _rate(times: Sequence[float], size: int) -> float:
    return size * len(times) / sum(times)


def main() -> None:
    """Measure what stdin asks for."""
    given = json.load(sys.stdin)
    folder, texts, seconds = Path(given["encoder"]), given["texts"], given["seconds"]
    together = ExportedEncoder.load(folder)
    processors = len(os.sched_getaffinity(0))
    apart = [ExportedEncoder.load(folder, 1) for _ in range(processors)]
    for encoder in (together, *apart):
        encoder.encode(texts[:_WARM], "query")
    best = {}
    with ThreadPoolExecutor(processors) as pool:
        for size in given["sizes"]:
            # Each in a part of the texts of its own: the same text twice at once would be kinder to the processor's cache.
            parts = [texts[number::processors] for number in range(processors)]
            alone = list(pool.map(_times, apart, parts, [size] * processors, [seconds] * processors))
            shared = _times(together, texts, size, seconds)  # after them, not beside them
            best[size] = max(_rate(shared, size), sum(_rate(each, size) for each in alone))
    lone = statistics.median(_times(together, texts, 1, seconds))
    print(json.dumps({"rates": best, "milliseconds": 1000 * lone}))


if __name__ == "__main__":
    main()
