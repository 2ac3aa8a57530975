"""Computes the table of docs/planning.md: disk and memory of a corpus, from a few measured figures and the formulas.

`python -m benchmarks.engines.planning` prints it; with a path, it replaces that of the page.
"""

import argparse
import math
import sys
from pathlib import Path

SIZES = {"1 million": 10**6, "10 million": 10**7, "100 million": 10**8, "1 billion": 10**9}
MARKER = "<!-- tables of benchmarks.engines.planning -->"
DIMENSION = 384  # of the default encoder
TEXT_BYTES = 1024  # of a passage with its metadata, as JSON

# Measured here: benchmarks/results/encoder.md, documents of squad_v2_dev with 1,024 tokens a batch, on two cores.
CORES, PASSAGES_PER_SECOND = 2, 35
# Of such a document: two operations a weight and token, and attention (Kaplan et al., 2020, table 1).
TOKENS, LAYERS = 160, 6
OPERATIONS = TOKENS * (2 * LAYERS * 12 * DIMENSION**2 + 4 * LAYERS * TOKENS * DIMENSION)
SHARE = 0.2  # of a GPU's peak that a small encoder reaches: an assumption

EDGES = 32  # of HNSW, as in retrieval/engines/engine.py; twice as many in the lowest layer, 4 bytes each
CODE_SHARE = 0.125  # of the vectors: DiskANN's compressed copies in memory (Milvus, PQCodeBudgetGBRatio)
NODE_BYTES, USABLE = 64 * 2**30, 0.7  # memory of one machine of the engine, and the share that data may take
REPLICAS = 2  # so that one may fail


# What encodes, by the passages a second of it: processors as measured, a GPU by its peak in NVIDIA's data sheet.
PROCESSORS = {"16 cores": PASSAGES_PER_SECOND * 16 / CORES, "NVIDIA A100": 312e12 * SHARE / OPERATIONS}


def hnsw_bytes(rows: int) -> float:
    """Vectors, the graph of the lowest layer, and the layers above, which hold one row in `EDGES`."""
    return rows * (4 * DIMENSION + 4 * 2 * EDGES + 4 * EDGES / (EDGES - 1) * 2)


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


def size(count: float) -> str:
    """Write bytes in GB or TB of 10⁹ and 10¹²."""
    return f"{count / 1e12:.1f} TB" if count >= 1e12 else f"{count / 1e9:.1f} GB"


def time(count: float) -> str:
    """Write hours as hours, days or years."""
    if count < 48:
        return f"{count:.1f} h"
    return f"{count / 24:,.0f} days" if count < 24 * 365 * 2 else f"{count / 24 / 365:.1f} years"


def tables() -> str:
    """Return the table as Markdown."""
    parts = ["| passages | stored once | HNSW | DiskANN | IVF, 8 bits | index | " + " | ".join(PROCESSORS) + " |"]
    parts += ["|---|---|---|---|---|---|" + "---|" * len(PROCESSORS)]
    for name, rows in SIZES.items():
        memory = {"HNSW": hnsw_bytes(rows), "DiskANN": code_bytes(rows)}
        kind = "HNSW" if machines(memory["HNSW"]) <= 4 else "DiskANN"
        sizes = [stored_bytes(rows), memory["HNSW"], memory["DiskANN"], ivf_bytes(rows)]
        hours = [rows / speed / 3600 for speed in PROCESSORS.values()]
        cells = [*map(size, sizes), f"{kind}, {machines(memory[kind])} × {REPLICAS} machines", *map(time, hours)]
        parts += [f"| {name} | {' | '.join(cells)} |"]
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
