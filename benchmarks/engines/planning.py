"""The tables of docs/planning.md: what a corpus of a size takes, computed from a few figures and the formulas below.

`python -m benchmarks.engines.planning` prints them; with a path, they replace those of that page.
"""

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path

SIZES = {"1 million": 10**6, "10 million": 10**7, "100 million": 10**8, "1 billion": 10**9}
MARKER = "<!-- tables of benchmarks.engines.planning -->"
DIMENSION = 384  # of the default encoder
TEXT_BYTES = 1024  # of a passage with its metadata, as JSON
SHARD_ROWS = 8192  # calibration/encoding/shards.py

# Measured here: benchmarks/results/encoder.md, documents of squad_v2_dev with 1,024 tokens a batch, on two cores.
CORES, PASSAGES_PER_SECOND = 2, 35
# Of such a document: two operations a weight and token, and attention (Kaplan et al., 2020, table 1).
TOKENS, LAYERS = 160, 6
OPERATIONS = TOKENS * (2 * LAYERS * 12 * DIMENSION**2 + 4 * LAYERS * TOKENS * DIMENSION)
SHARE = 0.2  # of a GPU's peak that a small encoder reaches: an assumption

EDGES = 32  # of HNSW, as in retrieval/engines/engine.py; twice as many in the lowest layer, 4 bytes each
DISK_EDGES, PAGE_BYTES = 56, 4096  # of DiskANN in Milvus, whose defaults its documentation names; a page of an SSD
CODE_SHARE = 0.125  # of the vectors: DiskANN's compressed copies in memory (Milvus, PQCodeBudgetGBRatio)
NODE_BYTES, USABLE = 64 * 2**30, 0.7  # memory of one machine of the engine, and the share that data may take
REPLICAS = 2  # so that one may fail
# Measured: Milvus 2.3.5, HNSW, 26 candidates with their vectors, rescored: docs/planning.md says how.
MEASURED_ROWS, MEASURED_MS = 100_000, 5.7
READ_MS, SEARCH_LIST, BEAM = 0.1, 100, 4  # a read of an SSD (assumed), and DiskANN's list and reads at a time


@dataclass(frozen=True)
class Processor:
    """What encodes: passages a second, and an assumed price of an hour in dollars.

    Attributes:
        source: Of the speed.
    """

    name: str
    passages_per_second: float
    price: float
    source: str


def gpu(name: str, teraflops: float, price: float) -> Processor:
    """Return a GPU by its peak in half precision, without sparsity, as NVIDIA's data sheet has it."""
    speed = teraflops * 1e12 * SHARE / OPERATIONS
    return Processor(name, speed, price, f"computed: {teraflops:g} TFLOP/s × {SHARE:.0%}".replace("%", " %"))


PROCESSORS = [
    Processor("16 cores", PASSAGES_PER_SECOND * 16 / CORES, 0.8, "measured on 2 cores, × 8"),
    gpu("NVIDIA L4", 121, 0.8),
    gpu("NVIDIA A100", 312, 3.0),
    gpu("NVIDIA H100 SXM", 989, 6.0),
]


def hnsw_bytes(rows: int) -> float:
    """Vectors, the graph of the lowest layer, and the layers above, which hold one row in `EDGES`."""
    return rows * (4 * DIMENSION + 4 * 2 * EDGES + 4 * EDGES / (EDGES - 1) * 2)


def disk_bytes(rows: int) -> float:
    """DiskANN on the SSD: as many whole nodes a page as fit."""
    node = 4 * DIMENSION + 4 * (DISK_EDGES + 1)
    return rows / (PAGE_BYTES // node) * PAGE_BYTES


def code_bytes(rows: int) -> float:
    """DiskANN in memory: the compressed copies of the vectors."""
    return rows * 4 * DIMENSION * CODE_SHARE


def ivf_bytes(rows: int) -> float:
    """IVF with one byte a number, in memory: codes, ids and 4√N centres."""
    return rows * (DIMENSION + 8) + 4 * math.sqrt(rows) * 4 * DIMENSION


def stored_bytes(rows: int) -> float:
    """Vectors and texts on the engine's object storage or disk, once."""
    return rows * (4 * DIMENSION + TEXT_BYTES)


def machines(memory: float) -> int:
    """Machines that hold so much memory, for one replica."""
    return max(1, math.ceil(memory / (NODE_BYTES * USABLE)))


def graph_ms(rows: int) -> float:
    """HNSW: the path through the graph grows with the logarithm of the rows (Malkov and Yashunin, 2018)."""
    per_machine = rows / machines(hnsw_bytes(rows))
    return MEASURED_MS * max(1.0, math.log(per_machine) / math.log(MEASURED_ROWS))


def disk_ms(rows: int) -> float:
    """DiskANN: the rounds of reads, on top of what a search of the same rows in memory takes."""
    return graph_ms(rows) + SEARCH_LIST / BEAM * READ_MS


def hours(rows: int, processor: Processor) -> float:
    """Hours that one such processor encodes."""
    return rows / processor.passages_per_second / 3600


def size(count: float) -> str:
    """Write bytes in GB or TB of 10⁹ and 10¹²."""
    return f"{count / 1e12:.1f} TB" if count >= 1e12 else f"{count / 1e9:.1f} GB"


def time(count: float) -> str:
    """Write hours as hours, days or years."""
    if count < 48:
        return f"{count:.1f} h"
    return f"{count / 24:,.0f} days" if count < 24 * 365 * 2 else f"{count / 24 / 365:.1f} years"


def tables() -> str:
    """Return the three tables as Markdown."""
    parts = ["### Memory, disk and machines\n"]
    parts += ["| passages | stored once | HNSW, memory | DiskANN, SSD and memory | IVF with 8 bits, memory | index |"]
    parts += ["|---|---|---|---|---|---|"]
    for name, rows in SIZES.items():
        memory = {"HNSW": hnsw_bytes(rows), "DiskANN": code_bytes(rows)}
        kind = "HNSW" if machines(memory["HNSW"]) <= 4 else "DiskANN"
        plan = f"{kind}, {machines(memory[kind])} × {REPLICAS} machines"
        parts += [
            f"| {name} | {size(stored_bytes(rows))} | {size(memory['HNSW'])} | {size(disk_bytes(rows))}, "
            f"{size(memory['DiskANN'])} | {size(ivf_bytes(rows))} | {plan} |"
        ]
    parts += [
        "\n### Encoding\n",
        "| passages | shards | " + " | ".join(processor.name for processor in PROCESSORS) + " |",
    ]
    parts += ["|---|---|" + "---|" * len(PROCESSORS)]
    parts += ["| passages a second | | " + " | ".join(f"{p.passages_per_second:,.0f}" for p in PROCESSORS) + " |"]
    parts += ["| from | | " + " | ".join(p.source for p in PROCESSORS) + " |"]
    for name, rows in SIZES.items():
        each = [f"{time(hours(rows, p))}, ${hours(rows, p) * p.price:,.0f}" for p in PROCESSORS]
        parts += [f"| {name} | {math.ceil(rows / SHARD_ROWS):,} | " + " | ".join(each) + " |"]
    parts += ["\n### Median time of a search\n", "| passages | HNSW | DiskANN |", "|---|---|---|"]
    parts += [f"| {name} | {graph_ms(rows):.1f} ms | {disk_ms(rows):.1f} ms |" for name, rows in SIZES.items()]
    return "\n".join(parts) + "\n"


def main() -> None:
    """Print the tables, or put them into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, nargs="?", help="page whose tables are replaced")
    page = parser.parse_args().page
    if page is None:
        sys.stdout.write(tables())
        return
    before, _, after = page.read_text(encoding="utf-8").split(MARKER)
    page.write_text(f"{before}{MARKER}\n\n{tables()}\n{MARKER}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
