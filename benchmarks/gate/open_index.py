"""One index of `million.py` in a process of its own: opened from its file, asked, and weighed. Prints one JSON object."""

import json
import sys
import time
from pathlib import Path
from typing import cast

import numpy as np

from taugate.retrieval.index.files import load
from taugate.retrieval.index.kinds import Kind


def main() -> None:
    """FOLDER KIND QUERIES.npy K."""
    folder, kind, queries, k = Path(sys.argv[1]), cast(Kind, sys.argv[2]), np.load(sys.argv[3]), int(sys.argv[4])
    before = _resident()
    began = time.perf_counter()
    index = load(folder, kind, queries.shape[1])
    loaded = time.perf_counter() - began
    index.search(queries[:1], k)
    first = time.perf_counter() - began
    seconds = []
    for row in range(len(queries)):
        began = time.perf_counter()
        index.search(queries[row : row + 1], k)
        seconds.append(time.perf_counter() - began)
    positions = index.search(queries, 10).positions.tolist()
    weight = {name: after - before[name] for name, after in _resident().items()}
    print(json.dumps({"load": loaded, "first": first, "seconds": seconds, "positions": positions, **weight}))


def _resident() -> dict[str, int]:
    """Return the resident bytes: this process's own, and those of files mapped into it."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: 1024 * int(lines[name].split()[0]) for name in ("RssAnon", "RssFile")}


if __name__ == "__main__":
    main()
