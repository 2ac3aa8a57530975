"""Whether a release fits into the memory of this process, asked before it is loaded.

Every search reads the whole index. If the control group allows less, the system maps it in again and again: the process
is not killed, but answers nothing, and no message says why.
"""

import logging
from pathlib import Path

from taugate.errors import InputError
from taugate.retrieval.encoder.bert import WEIGHTS
from taugate.retrieval.encoder.graph import DATA, MODEL
from taugate.retrieval.index.names import INDEX
from taugate.retrieval.release.layout import ENCODER_FOLDER, FLOAT32_FOLDER, LEXICAL, METADATA, QUERY_FOLDER
from taugate.storage.control_groups import memory_limit

# The process with all-MiniLM-L6-v2 in int8, 320 MB, less its weights (docs/operations.md, "Capacity").
_PROCESS_BYTES = 300 << 20
_READ_WHOLE = {INDEX, LEXICAL, METADATA, MODEL, DATA, WEIGHTS}  # other files are mapped, and read in part
_TIGHT = 0.8  # share of the limit; the rest is for replies, the cache, and a release that replaces this one
_WAY_OUT = (
    "raise the limit (in the chart, resources.limits.memory), or calibrate with a smaller index, such as "
    "--index flat-int8"
)
_log = logging.getLogger(__name__)


def bytes_held(release: Path) -> int:
    """Return the bytes of memory that a release takes in a process that searches it, from the sizes of its files."""
    unused = {FLOAT32_FOLDER, ENCODER_FOLDER if (release / QUERY_FOLDER).is_dir() else QUERY_FOLDER}
    held = [path for path in release.rglob("*") if path.name in _READ_WHOLE and path.parent.name not in unused]
    return sum(path.stat().st_size for path in held)


def check_memory(*releases: Path) -> str | None:
    """Return a warning, also logged, if releases in one process leave little of the memory that is allowed.

    Raises:
        InputError: If they need more than the control groups allow.
    """
    limit = memory_limit()
    needed = _PROCESS_BYTES + sum(map(bytes_held, releases))
    if limit is None or needed <= _TIGHT * limit:
        return None
    names = " with the shadow ".join(release.name for release in releases)
    numbers = f"{names} needs {needed / 2**30:.2f} GiB of memory, the control group allows {limit / 2**30:.2f} GiB"
    if needed > limit:
        raise InputError(f"{numbers}: {_WAY_OUT}")
    _log.warning("%s: little is left for replies and for the next release; %s", numbers, _WAY_OUT)
    return f"{numbers}: {_WAY_OUT}"
