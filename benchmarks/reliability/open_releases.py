"""Opens release folders named on stdin, one after the other, and says of each what came of it, one JSON object a line.

A process of its own: what a reader in C++ does to it is seen from outside. Not for people.
"""

import json
import os
import resource
import sys
from pathlib import Path

import numpy as np

from taugate.errors import TaugateError
from taugate.retrieval.query import Query
from taugate.retrieval.release.reader import Release, load

_ADDRESSES = 8 << 30  # bytes: a machine must survive what is measured here


def main() -> None:
    """Until stdin ends."""
    results = os.fdopen(os.dup(1), "w")  # libraries in C++ print to stdout what they think of a file
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
    for line in sys.stdin:
        folder = Path(line.rstrip("\n"))
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        outcome, said = _open(folder)
        print(json.dumps({"outcome": outcome, "said": said, "peak": _peak()}), file=results, flush=True)


def _open(folder: Path) -> tuple[str, str]:
    try:
        release = load(folder, 1)
    except (TaugateError, OSError) as error:
        return "refused", str(error)
    except BaseException as error:  # noqa: BLE001 (what escapes the reader is what is looked for)
        return "crashed", f"{type(error).__name__}: {error}"
    try:
        _use(release)
    except TaugateError as error:
        return "refused later", str(error)
    except BaseException as error:  # noqa: BLE001
        return "crashed", f"served, then {type(error).__name__}: {error}"
    return "served", ""


def _use(release: Release) -> None:
    """Use a release as a service does: search it and read what was found."""
    texts = [query.text for query in release.golden][:8]
    for k in (1, release.manifest.policy.k, 50):
        answers = release.retriever.search([Query(text, k) for text in texts])
        for answer in answers:
            [release.documents[int(position)] for position in answer.positions]
    for column in release.metadata.columns.values():
        np.asarray(column.codes).max()


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) << 10


if __name__ == "__main__":
    main()
